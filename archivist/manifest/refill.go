// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// A notice stream that was deleted and recreated lost messages that consumers may not have read.
// The manifests know what it held, and all of it is announced again before they list anything that
// the new stream holds.

const (
	// refillBatch notices are on their way at once. It is also how many a kill leaves
	// in doubt: the next one looks for them in the stream.
	refillBatch = 256
	// refillFullPause is how long to wait where the stream takes no more.
	refillFullPause = 5 * time.Second
	refillAckWait   = 10 * time.Second
)

// refill announces again what a stream needs. It belongs to one goroutine.
type refill struct {
	*Config
	cell   *stream.Cell
	cursor wire.RefillCursor
	// found are IDs of notices that are in the stream and that the cursor does not know of.
	found foundIDs
}

// foundIDs holds eight bytes of the hash of each ID, in order: a stream may have millions.
type foundIDs []uint64

func half(id string) uint64 {
	h := read.HashID(id)
	return binary.BigEndian.Uint64(h[:8])
}

func (s foundIDs) has(id string) bool {
	_, found := slices.BinarySearch(s, half(id))
	return found
}

// refill sees that the notice stream holds what was announced within
// Config.NoticeRetention, and returns its epoch. Errors: as Run.
func (w *Writer) refill(ctx context.Context) (epoch string, err error) {
	cursors, err := w.cfg.JetStream.KeyValue(ctx, wire.CursorBucket(w.cfg.Site))
	if err != nil {
		return "", fmt.Errorf("bucket %s: %w", wire.CursorBucket(w.cfg.Site), err)
	}
	r := &refill{Config: &w.cfg, cell: stream.NewCell(w.cfg.JetStream, cursors, wire.RefillCursorKey)}
	data, err := r.cell.Load(ctx)
	if err != nil {
		return "", err
	}
	if data != nil {
		if r.cursor, err = wire.Decode[wire.RefillCursor](data); err != nil {
			return "", fmt.Errorf("cursor %s: %w", wire.RefillCursorKey, err)
		}
	}
	for {
		epoch, state, err := stream.Epoch(ctx, r.JetStream, wire.NoticeStream(r.Site))
		if err != nil {
			return "", err
		}
		switch {
		case r.cursor.Epoch == epoch && r.cursor.Done:
			return epoch, nil
		case r.cursor.Epoch == epoch:
			if err := r.find(ctx, state.LastSeq); err != nil {
				return "", err
			}
		case data == nil && w.workedOn(ctx, epoch): // an archivist that knew no refilling
			r.cursor = wire.RefillCursor{Epoch: epoch, Done: true}
			return epoch, r.save(ctx)
		default:
			r.cursor = wire.RefillCursor{Epoch: epoch, Held: data == nil && state.Msgs > 0}
			if r.cursor.Held {
				if err := r.find(ctx, state.LastSeq); err != nil {
					return "", err
				}
			}
			if err := r.begin(ctx, time.Now().UTC()); err != nil {
				return "", err
			}
		}
		if err := r.run(ctx); err != nil {
			return "", err
		}
	}
}

// workedOn says whether a writer has listed notices of the stream with an epoch.
func (w *Writer) workedOn(ctx context.Context, epoch string) bool {
	cursors, err := w.cfg.JetStream.KeyValue(ctx, wire.CursorBucket(w.cfg.Site))
	if err != nil {
		return false
	}
	data, err := stream.NewCell(w.cfg.JetStream, cursors, wire.NoticeCursorKey).Load(ctx)
	if err != nil || data == nil {
		return false
	}
	cursor, err := wire.Decode[wire.StreamCursor](data)
	return err == nil && cursor.Epoch == epoch
}

// begin decides what is announced again: what was received within the retention, as far as the
// stream has space for it.
func (r *refill) begin(ctx context.Context, now time.Time) error {
	since := now.Add(-r.NoticeRetention)
	s, err := r.JetStream.Stream(ctx, wire.NoticeStream(r.Site))
	if err != nil {
		return fmt.Errorf("stream %s: %w", wire.NoticeStream(r.Site), err)
	}
	space := int64(-1)
	if most := s.CachedInfo().Config.MaxBytes; most > 0 {
		space = max(0, int64(refillShare*float64(most))-int64(s.CachedInfo().State.Bytes))
	}
	m, err := r.measure(ctx, since, now)
	if err != nil {
		return err
	}
	from, count, left := m.fit(space)
	if count+left > 0 {
		r.Log.Warn("the notice stream was recreated: announcing again what the manifests list of it",
			"stream", wire.NoticeStream(r.Site), "epoch", r.cursor.Epoch, "since", from, "notices", count)
	}
	if left > 0 {
		r.Metrics.leftOut.Add(float64(left))
		r.Log.Error("the notice stream has no space for all notices that are to be announced again: leaving out the oldest, which the archive has",
			"stream", wire.NoticeStream(r.Site), "notices", left)
	}
	r.cursor.Since = from
	return r.save(ctx)
}

// run announces what the cursor does not say to be in the stream yet.
func (r *refill) run(ctx context.Context) error {
	committer, err := stream.NewCommitter(r.JetStream.Conn(), stream.CommitterConfig{
		Stream: wire.NoticeStream(r.Site), MaxMessages: refillBatch, AckWait: refillAckWait})
	if err != nil {
		return err
	}
	defer func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = committer.Close(over) // all is settled, or another process continues
	}()
	last := wire.DayOf(time.Now().Add(24 * time.Hour)) // clocks differ
	for at := later(r.cursor.Since, r.cursor.Through); wire.DayOf(at) <= last; at = at.Add(24 * time.Hour) {
		for more := true; more; {
			var notices []wire.Notice
			if notices, more, err = r.next(ctx, wire.DayOf(at)); err != nil {
				return err
			}
			for len(notices) > 0 {
				n := min(len(notices), refillBatch)
				if err := r.announce(ctx, committer, notices[:n]); err != nil {
					return err
				}
				notices = notices[n:]
			}
		}
	}
	r.cursor.Done = true
	if err := r.save(ctx); err != nil {
		return err
	}
	if r.cursor.Announced > 0 {
		r.Log.Info("the notice stream is refilled", "stream", wire.NoticeStream(r.Site), "notices", r.cursor.Announced)
	}
	return nil
}

// announce publishes notices, in their order, and then moves the cursor.
func (r *refill) announce(ctx context.Context, committer *stream.Committer, notices []wire.Notice) error {
	var messages []*nats.Msg
	for _, n := range notices {
		if r.found.has(n.MessageID()) {
			if !r.cursor.Held {
				r.cursor.Announced++
			}
			continue
		}
		m, err := stream.NoticeMessage(n, r.Pod)
		if err != nil {
			return err
		}
		m.Header.Set(wire.HeaderRefilled, wire.RefilledAgain)
		messages = append(messages, m)
	}
	for len(messages) > 0 {
		if err := r.Lease.Check(); err != nil {
			return err
		}
		full, err := r.publish(ctx, committer, messages)
		if err != nil {
			return err
		}
		if len(full) > 0 {
			r.Log.Warn("the notice stream is full: waiting for space to announce notices again", "notices", len(full))
			select {
			case <-time.After(refillFullPause):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		messages = full
	}
	last := notices[len(notices)-1]
	r.cursor.Through, r.cursor.ThroughID = last.ReceivedAt, last.MessageID()
	return r.save(ctx)
}

// publish publishes messages and returns those for which the stream has no space.
func (r *refill) publish(ctx context.Context, committer *stream.Committer, messages []*nats.Msg) (full []*nats.Msg, err error) {
	type result struct {
		index int
		ack   stream.Ack
		err   error
	}
	results := make(chan result, len(messages))
	for i, m := range messages {
		if err := committer.Submit(ctx, m, func(ack stream.Ack, err error) { results <- result{i, ack, err} }); err != nil {
			return nil, err
		}
	}
	refused := make([]bool, len(messages))
	for range messages {
		var one result
		select {
		case one = <-results:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		switch {
		case errors.Is(one.err, stream.ErrFull):
			refused[one.index] = true
			continue
		case one.err != nil:
			return nil, one.err
		}
		r.cursor.Sequence = max(r.cursor.Sequence, one.ack.Sequence)
		r.cursor.Announced++
		r.Metrics.refilled.Inc()
	}
	for i, m := range messages {
		if refused[i] {
			full = append(full, m)
		}
	}
	return full, nil
}

// find looks for notices in the stream that the cursor does not know: those that a predecessor
// announced again and had not noted yet, or, if the cursor was lost, all.
func (r *refill) find(ctx context.Context, last uint64) error {
	r.found = nil
	start := r.cursor.Sequence + 1
	if r.cursor.Held {
		start = 1
	}
	reader := stream.NewReader(r.JetStream, stream.ReaderConfig{Stream: wire.NoticeStream(r.Site), Epoch: r.cursor.Epoch,
		Subject: wire.NoticeSubjects(r.Site), Start: start, HeadersOnly: true})
	for {
		if next, _ := reader.Position(); next > last {
			slices.Sort(r.found)
			return nil
		}
		messages, err := reader.Next(ctx, readBatch, readWait)
		if err != nil {
			return err
		}
		for _, m := range messages {
			if r.cursor.Held || m.Header.Get(wire.HeaderRefilled) != "" {
				r.found = append(r.found, half(m.Header.Get(wire.HeaderID)))
			}
		}
	}
}

func (r *refill) save(ctx context.Context) error {
	if err := r.Lease.Check(); err != nil {
		return err
	}
	value, err := wire.Encode(r.cursor)
	if err != nil {
		return err
	}
	return r.cell.Store(ctx, value)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
