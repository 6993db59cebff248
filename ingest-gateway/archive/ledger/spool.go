// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// What one incarnation received into the spool, and another brings home, counts as received by the one that has it: while
// both count nothing else differently, the columns' sums over all incarnations agree at any time, whichever was killed.
//
//   - The incarnation that received it counts it as received (and acknowledged). When that one has ended, its totals are
//     made final: received is then what it announced.
//   - The next incarnation adopts what waits: it counts that as received, and later as stored and announced.
//   - What was announced, and not noted as done in the spool, is found in the stream and not adopted.

// Spooled counts objects that wait in the spool, and their bytes.
type Spooled struct {
	Objects uint64 `json:"objects"`
	Bytes   uint64 `json:"bytes"`
}

func (s Spooled) plus(o Spooled) Spooled { return Spooled{s.Objects + o.Objects, s.Bytes + o.Bytes} }

// overlaps is an object, by its id, that waits in the spool and is in the stream.
type overlaps struct {
	Instrument string `json:"instrument"`
	Bytes      uint64 `json:"bytes"`
}

// waiting is what the incarnation had received that was in the spool, and not in the stream, at its end.
func (cp *checkpoint) waiting() map[string]Spooled {
	w := maps.Clone(cp.Spooled)
	for _, o := range cp.Overlap {
		if s := w[o.Instrument]; s.Objects > 0 { // always, unless the file is damaged
			w[o.Instrument] = Spooled{s.Objects - 1, s.Bytes - min(s.Bytes, o.Bytes)}
		}
	}
	return w
}

// noteSpooled notes what waits in the spool with the incarnations that received it, once: later some of it is at home.
func (l *Ledger) noteSpooled() error {
	if l.cfg.Spooled == nil {
		return nil
	}
	for _, p := range l.writer.previous {
		if p.checkpoint.SpoolSeen || p.checkpoint.Format == 0 {
			continue
		}
		p.checkpoint.SpoolSeen, p.checkpoint.Spooled = true, l.cfg.Spooled[p.incarnation]
		if err := writeJSON(p.path+checkpointExtension, p.checkpoint); err != nil {
			return err
		}
	}
	return nil
}

// Announced returns the ids of the notices that earlier incarnations, whose totals are not final, published and that
// the stream holds, and which incarnation it was.
func (l *Ledger) Announced(ctx context.Context, js jetstream.JetStream) (map[string]string, error) {
	l.previous.Lock()
	r := newRecount(l.cfg, l.writer.previous)
	l.previous.Unlock()
	ids := map[string]string{}
	if len(r.counts) == 0 {
		return ids, nil
	}
	notices := func(p position) place { return p.Notices }
	err := r.scanStream(ctx, js, wire.NoticeStream(l.cfg.Site), notices, true, func(msg jetstream.Msg) {
		id := msg.Headers().Get(wire.HeaderPublication)
		if r.mine(id) != nil {
			_, incarnation, _, _ := wire.ParsePublicationID(id) // mine did so before
			ids[msg.Headers().Get(wire.HeaderID)] = incarnation
		}
	})
	return ids, err
}

// Adopt counts an object as received that an earlier incarnation received into the spool.
func (l *Ledger) Adopt(instrument string, at time.Time, size int64, digest wire.Digest) {
	c := l.cell(instrument, at)
	c.mu.Lock()
	c.slot.add(objectsReceived, 1)
	c.slot.add(objectBytesReceived, uint64(size))
	c.slot.add(objectsAdopted, 1)
	c.receivedDigest = c.receivedDigest.Plus(digest)
	c.mu.Unlock()
	c.dirty.Store(true)
}

// AdoptedAll says that Adopt was called for everything that waits: totals of earlier incarnations can be made final.
func (l *Ledger) AdoptedAll() { l.writer.adopted.Store(true) }

// WasAnnounced says of an object that an incarnation received into the spool that it had announced it, too. It is to be
// called before the spool forgets the object. Of an incarnation whose totals are final nothing is noted.
func (l *Ledger) WasAnnounced(incarnation, instrument, id string, size int64) error {
	l.previous.Lock()
	defer l.previous.Unlock()
	for _, p := range l.writer.previous {
		if p.incarnation != incarnation || p.checkpoint.Spooled[instrument].Objects == 0 {
			continue
		}
		overlap := maps.Clone(p.checkpoint.Overlap) // the recount may be reading the one before
		if overlap == nil {
			overlap = map[string]overlaps{}
		}
		overlap[id] = overlaps{instrument, uint64(size)}
		p.checkpoint.Overlap = overlap
		if err := writeJSON(p.path+checkpointExtension, p.checkpoint); err != nil {
			return fmt.Errorf("ledger: %w", err)
		}
	}
	return nil
}

// Unreceive takes back that an object was received: it is counted elsewhere, or lost. Adopted says whether Adopt counted
// it.
func (l *Ledger) Unreceive(instrument string, at time.Time, size int64, digest wire.Digest, adopted bool) {
	c := l.cell(instrument, at)
	c.mu.Lock()
	c.slot.add(objectsReceived, ^uint64(0))
	c.slot.add(objectBytesReceived, -uint64(size))
	if adopted {
		c.slot.add(objectsAdopted, ^uint64(0))
	}
	c.receivedDigest = c.receivedDigest.Minus(digest)
	c.mu.Unlock()
	c.dirty.Store(true)
}
