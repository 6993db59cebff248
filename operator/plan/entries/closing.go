// SPDX-License-Identifier: Apache-2.0

package entries

import (
	"maps"
	"reflect"
	"slices"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/observed"
)

// Closing are the Instruments and Feeds that a change of the registry closes to readers who had access, or that are new and closed.
type Closing struct {
	Instruments []string `json:"instruments,omitempty"`
	Feeds       []string `json:"feeds,omitempty"`
}

// Any says whether it closes anything.
func (c Closing) Any() bool { return len(c.Instruments)+len(c.Feeds) > 0 }

// Closes returns what the change closes, compared with the current registry.
func (c Change) Closes(stands observed.RegistryState) (closing Closing) {
	for i := range c.Put {
		entry := &c.Put[i]
		was, stood := stands.Entries[entry.Instrument]
		if entry.Access.Closed() && (!stood || was.Instrument == "" || !reflect.DeepEqual(was.Access, entry.Access)) {
			closing.Instruments = append(closing.Instruments, entry.Instrument)
		}
	}
	for i := range c.PutFeeds {
		entry := &c.PutFeeds[i]
		if entry.Live == wire.AccessRestricted && stands.Feeds[entry.Feed].Live != entry.Live {
			closing.Feeds = append(closing.Feeds, entry.Feed)
		}
	}
	return closing
}

// remember adds to a change the instruments that leave the registry while they are closed to some readers, and removes the notes of those
// that have an entry again.
func (c *Change) remember(stands observed.RegistryState, next int64) {
	for _, name := range c.Delete {
		if access, leaves := accept.LeavesClosed(stands.Entries, name); leaves {
			c.PutClosed = append(c.PutClosed, wire.ClosedEntry{Revision: next, Instrument: name, Access: *access})
		}
	}
	if len(stands.Closed) == 0 {
		return
	}
	stay := make(map[string]bool, len(stands.Entries))
	for name := range stands.Entries {
		stay[name] = true
	}
	for _, name := range c.Delete {
		delete(stay, name)
	}
	for i := range c.Put {
		stay[c.Put[i].Instrument] = true
	}
	for _, name := range slices.Sorted(maps.Keys(stands.Closed)) {
		if stay[name] {
			c.DeleteClosed = append(c.DeleteClosed, name)
		}
	}
}
