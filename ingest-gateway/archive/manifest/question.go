// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"

	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/wire"
)

// listing is what the manifests say about an object.
type listing int

const (
	unlisted listing = iota
	current
	withdrawn
)

// question is what the sweep asks the writer, who alone knows open parts.
type question struct {
	key    dayKey
	ids    []string
	answer chan []listing
}

// answer answers what is asked at this moment: nil for a day that is not in memory.
func (w *Writer) answer() {
	for {
		select {
		case q := <-w.questions:
			var found []listing
			if d := w.days[q.key]; d != nil {
				found = lookUp(d.ids, q.ids)
			}
			q.answer <- found
		default:
			return
		}
	}
}

func lookUp(known map[idHash]bool, ids []string) []listing {
	found := make([]listing, len(ids))
	for i, id := range ids {
		if gone, ok := known[hashID(id)]; ok {
			found[i] = current
			if gone {
				found[i] = withdrawn
			}
		}
	}
	return found
}

// ask says what the manifests list, open parts included. Of a day that the
// writer does not have in memory there are none, and the store is read; stored
// keeps what was read of the last such day.
func (s *Sweeper) ask(ctx context.Context, key dayKey, ids []string) ([]listing, error) {
	q := question{key: key, ids: ids, answer: make(chan []listing, 1)}
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
	if s.stored.key != key {
		known := make(map[idHash]bool)
		for r, err := range read.Records(ctx, s.cfg.Store, s.cfg.Site, key.instrument, key.day) {
			if err != nil {
				return nil, err
			}
			known[hashID(r.ID)] = r.State == wire.StateWithdrawn
		}
		s.stored = storedDay{key, known}
	}
	return lookUp(s.stored.ids, ids), nil
}

// storedDay is what the closed parts of a day list.
type storedDay struct {
	key dayKey
	ids map[idHash]bool
}
