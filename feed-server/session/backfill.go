// SPDX-License-Identifier: Apache-2.0

package session

import (
	"time"

	"github.com/substorm/substorm/feed-server/flow"
	"github.com/substorm/substorm/feed-server/hub"
)

// backfill keeps notices of backfill from replacing newer ones: in modes Latest and
// Sample one is given only where no newer notice of its instrument was given or waits.
// Notices of backfill have a subject of their own, so that they wait beside the others.
type backfill struct {
	newest map[instrument]newest
	// replaced notices of backfill were not given.
	replaced uint64
}

// instrument of a Site.
type instrument struct{ site, name string }

type newest struct {
	// at is when the newest notice was observed.
	at time.Time
	// left are the notices of backfill that were not given since the last one that was.
	left uint64
}

// noteOffered notes a notice that is offered. One of backfill counts only once it is given.
func (b *backfill) noteOffered(m *hub.Message, at time.Time) {
	if m.Backfill {
		return
	}
	key := instrument{m.Site, m.Instrument}
	if is, known := b.newest[key]; !known || at.After(is.at) {
		b.note(key, newest{at, is.left})
	}
}

// gives reports whether a message that is due is given, and adds to what it stands for those
// that were not.
func (b *backfill) gives(m *hub.Message, k *flow.Kept) bool {
	if !m.Backfill {
		return true
	}
	key := instrument{m.Site, m.Instrument}
	is := b.newest[key]
	if k.At.Before(is.at) {
		b.replaced++
		is.left += 1 + k.Replaced + k.Sampled
		b.note(key, is)
		return false
	}
	k.Replaced += is.left
	b.note(key, newest{at: k.At})
	return true
}

// note remembers what is known of an instrument. If there are more than may wait, one of the
// others is forgotten.
func (b *backfill) note(key instrument, is newest) {
	if b.newest == nil {
		b.newest = map[instrument]newest{}
	}
	if _, known := b.newest[key]; !known && len(b.newest) >= conflateBounds.Items {
		for other := range b.newest {
			delete(b.newest, other)
			break
		}
	}
	b.newest[key] = is
}
