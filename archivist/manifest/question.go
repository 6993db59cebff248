// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"slices"

	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/wire"
)

// listing is what the manifests say about an object. The greatest of what several
// lines say holds.
type listing uint8

const (
	unlisted listing = iota
	current          // or superseded, or retracted: its bytes are kept
	purged
	duplicate
)

func listingOf(s wire.State) listing {
	switch s {
	case wire.StateDuplicate:
		return duplicate
	case wire.StatePurged:
		return purged
	default:
		return current
	}
}

// question is what the sweep asks the writer, which alone knows open parts.
type question struct {
	slotKey
	ids    []string
	answer chan []listing
}

type slotKey struct {
	dayKey
	number int
}

// answer answers what is asked at this moment: nil for a slot that is not in memory.
func (w *Writer) answer() {
	for {
		select {
		case q := <-w.questions:
			var found []listing
			if d := w.days[q.dayKey]; d != nil && (d.slots[q.number] != nil || !d.listed[q.number]) {
				var known idSet
				if s := d.slots[q.number]; s != nil {
					known = s.ids
				}
				found = lookUp(known, q.ids)
				if d.setAside {
					found = keepAll(q.ids)
				}
			}
			q.answer <- found
		default:
			return
		}
	}
}

// keepAll is the answer for a day that cannot be read: what is in the store may be listed, and
// must be kept.
func keepAll(ids []string) []listing { return slices.Repeat([]listing{current}, len(ids)) }

func lookUp(known idSet, ids []string) []listing {
	found := make([]listing, len(ids))
	for i, id := range ids {
		found[i] = known[read.HashID(id)]
	}
	return found
}

// ask says what the manifests list of a slot, open parts included. If the writer does not have the slot in memory, it
// has no open parts, and the store is read; stored keeps what was read last.
func (s *Sweeper) ask(ctx context.Context, key slotKey, ids []string) ([]listing, error) {
	q := question{slotKey: key, ids: ids, answer: make(chan []listing, 1)}
	select {
	case s.writer.questions <- q:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case found := <-q.answer:
		if found != nil {
			return found, nil
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.stored == nil || s.storedDay != key.dayKey || !s.stored.covers(key.number) {
		s.stored = nil
		l, err := readDay(ctx, s.cfg.Store, s.cfg.Site, key.dayKey, key.number, s.writer.limits.ids, nil, nil)
		if err != nil {
			return nil, err
		}
		s.stored, s.storedDay = l, key.dayKey
		s.writer.unreadable.tell(ctx, key.dayKey, l.unreadable)
	}
	if len(s.stored.unreadable) > 0 {
		return keepAll(ids), nil
	}
	return lookUp(s.stored.slots[key.number], ids), nil
}
