// SPDX-License-Identifier: Apache-2.0

package manifest

import "github.com/substorm/substorm/internal/wire"

// contents are what is known of objects that are not of the media type that is declared.
type contents struct{ said[wire.ContentStatus] }

// note takes an object that was listed. One of an earlier day than the last one is counted alone. One that is listed again after a kill
// may be counted twice.
func (c *contents) note(n *wire.Notice) {
	if n.Looks == "" {
		return
	}
	is := c.of[n.Instrument]
	is.Count++
	switch last, day := wire.DayOf(is.ReceivedAt), wire.DayOf(n.ReceivedAt); {
	case is.Today == 0 || day > last:
		is.ReceivedAt, is.Today = n.ReceivedAt, 1
		is.ID, is.Path, is.MediaType, is.Looks = n.ID, n.Published(), n.MediaType, n.Looks
	case day == last:
		is.Today++
		if n.ReceivedAt.After(is.ReceivedAt) {
			is.ReceivedAt = n.ReceivedAt
		}
	}
	c.set(n.Instrument, is)
}
