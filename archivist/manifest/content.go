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
	status := c.of[n.Instrument]
	status.Count++
	switch last, day := wire.DayOf(status.ReceivedAt), wire.DayOf(n.ReceivedAt); {
	case status.Today == 0 || day > last:
		status.ReceivedAt, status.Today = n.ReceivedAt, 1
		status.ID, status.Path, status.MediaType, status.Looks = n.ID, n.Published(), n.MediaType, n.Looks
	case day == last:
		status.Today++
		if n.ReceivedAt.After(status.ReceivedAt) {
			status.ReceivedAt = n.ReceivedAt
		}
	}
	c.set(n.Instrument, status)
}
