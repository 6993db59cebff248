// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"time"

	"github.com/substorm/substorm/internal/access"
)

// Readable returns the instruments of a selection whose live data a reader may have,
// and how long after its observation each keeps it from that reader. Access.Decide
// decides; that it goes by the data's age alone lets the answer be found once, and
// used for each message.
func (s *Snapshot) Readable(sel Selection, reader access.Reader, now time.Time) map[string]time.Duration {
	readable := map[string]time.Duration{}
	for name := range sel.Instruments {
		if s.Decide(sel.Feed, reader, name, time.Time{}, now) != access.Granted {
			continue
		}
		readable[name] = 0
		if entry := s.Instruments[name].Access; !reader.Named(name, entry) {
			readable[name] = entry.Embargo()
		}
	}
	return readable
}
