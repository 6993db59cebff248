// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// noteInterval is how often places are noted: what leaves a stream sooner than that after
// it was acknowledged may be in a gap record, where a feed server dies.
const noteInterval = time.Second

// places are how far a lease's consumers are: for modes Latest and Sample how far their streams are
// filled, for mode All how far they have acknowledged. Messages to a consumer name its place, too,
// and so does its DeliveryCursor. But for a consumer that gets nothing the Feed's messages pass all
// the same, and leave their stream, and cursors, which take one write each, are seldom written. One
// write here covers all consumers, so there is at most one each noteInterval.
type places struct {
	lease *stream.Lease
	log   *slog.Logger
	cell  *stream.Cell
	// unsure: the last write may be there or not.
	unsure bool

	mu     sync.Mutex
	cursor wire.FilledCursor
	dirty  bool
}

// loadPlaces reads the places of a lease.
func (d *delivery) loadPlaces(ctx context.Context, lease *stream.Lease, leaseKey string) (*places, error) {
	cursors, err := d.cfg.JetStream.KeyValue(ctx, wire.CursorBucket(d.cfg.Site))
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", wire.CursorBucket(d.cfg.Site), err)
	}
	key := wire.FilledCursorKey(leaseKey)
	p := &places{lease: lease, log: d.cfg.Logger, cell: stream.NewCell(d.cfg.JetStream, cursors, key)}
	data, err := p.cell.Load(ctx)
	if err != nil {
		return nil, err
	}
	if data != nil {
		if p.cursor, err = wire.Decode[wire.FilledCursor](data); err != nil {
			return nil, fmt.Errorf("cursor %s: %w", key, err)
		}
	}
	if p.cursor.Places == nil {
		p.cursor.Places = map[string]wire.FilledPlace{}
	}
	return p, nil
}

// of returns the place of a consumer in a stream of its own that has an epoch, and a last sequence;
// false if none is known.
func (p *places) of(consumer, uid, epoch string, last uint64) (wire.FeedToken, bool) {
	p.mu.Lock()
	is, known := p.cursor.Places[consumer]
	p.mu.Unlock()
	if !known || is.UID != uid || is.Epoch != epoch || is.Last > last {
		return wire.FeedToken{}, false
	}
	token, err := wire.ParseFeedToken(is.Token)
	return token, err == nil && token != wire.FeedToken{}
}

// note notes the place of a consumer, all before which is in its stream or is not to be.
func (p *places) note(consumer string, at wire.FilledPlace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cursor.Places[consumer] != at {
		p.cursor.Places[consumer], p.dirty = at, true
	}
}

// keep forgets consumers that are not among those wanted.
func (p *places) keep(want map[string]registry.Selection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.cursor.Places {
		if _, there := want[name]; !there {
			delete(p.cursor.Places, name)
			p.dirty = true
		}
	}
}

// save writes what was noted. Errors: those of the lease. Other errors are logged, and the
// places are written the next time.
func (p *places) save(ctx context.Context) error {
	p.mu.Lock()
	value, err := wire.Encode(p.cursor)
	dirty := p.dirty
	p.dirty = false
	p.mu.Unlock()
	if err != nil || !dirty {
		return err
	}
	if err := p.lease.Check(); err != nil {
		return err
	}
	if p.unsure {
		_, err = p.cell.Load(ctx)
	}
	if err == nil {
		err = p.cell.Store(ctx, value)
	}
	if p.unsure = err != nil; !p.unsure {
		return nil
	}
	p.mu.Lock()
	p.dirty = true
	p.mu.Unlock()
	if ctx.Err() == nil {
		p.log.Warn("cannot store how far consumers' streams are filled; retrying", "error", err)
	}
	return nil
}

// saveUntil saves what is noted, now and then, until something changed.
func (p *places) saveUntil(ctx context.Context, changed <-chan struct{}, now <-chan time.Time) error {
	for {
		select {
		case <-now:
			if err := p.save(ctx); err != nil {
				return err
			}
		case <-changed:
			return nil
		case <-p.lease.Lost():
			return stream.ErrLeaseLost
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// further returns the place that is further in each stream; for places in two different streams it
// returns that of a.
func further(a, b wire.FeedToken) wire.FeedToken {
	return wire.FeedToken{Notices: furtherIn(a.Notices, b.Notices), Telemetry: furtherIn(a.Telemetry, b.Telemetry)}
}

func furtherIn(a, b wire.ResumeToken) wire.ResumeToken {
	further := a.Epoch == b.Epoch && (b.Sequence > a.Sequence || b.Sequence == a.Sequence && b.Index > a.Index)
	if a.Epoch == "" || further {
		return b
	}
	return a
}

// note notes how far the consumer is, for a feed server that takes over: the cursor is seldom
// saved. It does nothing if a gap was found since, which is only in the cursor.
func (w *watch) note() {
	notices := w.cursor.Places[wire.NoticeStream(w.cfg.Site)]
	if w.unsaved || notices.Epoch == "" {
		return
	}
	w.places.note(w.consumer, wire.FilledPlace{UID: w.cursor.UID, Epoch: notices.Epoch, Token: w.place().String()})
}

// catchUp takes what was noted since the cursor was saved.
func (w *watch) catchUp() {
	noted, known := w.places.of(w.consumer, w.cursor.UID, w.cursor.Places[wire.NoticeStream(w.cfg.Site)].Epoch, 0)
	if !known {
		return
	}
	for stream, behind := range map[string]wire.ResumeToken{w.selection.Notices: noted.Notices, w.selection.Telemetry: noted.Telemetry} {
		is, next := w.cursor.Places[stream], behind.Sequence+1
		if is.Epoch == "" || is.Epoch != behind.Epoch || is.Next >= next {
			continue
		}
		is.Next, is.Waits, is.Last = next, false, max(is.Last, behind.Sequence)
		w.cursor.Places[stream], w.dirty = is, true
		maps.DeleteFunc(w.cursor.Marks[stream], func(_ string, at uint64) bool { return at < next })
	}
}
