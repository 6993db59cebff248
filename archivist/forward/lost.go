// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// trimLook is how often it is looked whether the stream was trimmed of what
	// waits, and recountAfter how long after a count the next one may come that a
	// tenth of the backlog does not ask for.
	trimLook     = 2 * time.Second
	recountAfter = 10 * time.Minute
)

// losses finds out what a stream that is trimmed takes from a copy that waits.
// It belongs to the goroutine that looks ahead: what was seen does not change
// meanwhile.
type losses struct {
	looked, counted time.Time
	// first is the stream's first sequence at the last count.
	first uint64
}

// countLost recounts the backlog after the stream was trimmed of a good part of it.
func (c *copier) countLost(ctx context.Context, w way, l *losses) error {
	c.mu.Lock()
	cursor, waits := c.cursor, c.lastError != ""
	c.mu.Unlock()
	if !waits || time.Since(l.looked) < trimLook {
		return nil
	}
	l.looked = time.Now()
	follows := w.follows(c.cfg.Site, c.instrument)
	epoch, state, err := stream.Epoch(ctx, c.cfg.JetStream, follows.Stream)
	if err != nil || epoch != cursor.Epoch {
		return err
	}
	first := state.FirstSeq
	tenth := cursor.SeenNext > first && first-l.first > (cursor.SeenNext-first)/10 || cursor.SeenNext <= first
	if first <= cursor.Next || first == l.first || !tenth && time.Since(l.counted) < recountAfter {
		return nil
	}
	l.first, l.counted = first, time.Now()
	follows.Epoch, follows.Start = epoch, first
	left, err := sumWaiting(ctx, w, stream.NewReader(c.cfg.JetStream, follows), cursor.SeenNext, cursor.Done)
	if err != nil {
		return err
	}
	c.mu.Lock()
	for _, i := range c.window.items { // the stream lost these, and we did not
		if i.sequence < first {
			left = plus(left, i.weight)
		}
	}
	gone := minus(backlog(c.cursor), left)
	if c.cursor.Next != cursor.Next {
		gone = wire.ForwardTotals{} // the copy advanced: what is gone shows when it has caught up
	}
	c.cursor.Dropped = plus(c.cursor.Dropped, gone)
	c.mu.Unlock()
	if gone.Items == 0 {
		return nil
	}
	c.saysLost(gone)
	return c.save(ctx)
}

func (c *copier) saysLost(gone wire.ForwardTotals) {
	c.cfg.Metrics.droppedItems(c.instrument, gone.Items)
	c.log.Error("the stream was trimmed of what the copy still needed", "items", gone.Items, "bytes", gone.Bytes)
}

// sumWaiting sums up what a reader finds before a place of the stream, and is not done.
func sumWaiting(ctx context.Context, w way, reader *stream.Reader, until uint64, done []uint64) (wire.ForwardTotals, error) {
	var sum wire.ForwardTotals
	for {
		if next, _ := reader.Position(); next >= until {
			return sum, nil
		}
		messages, err := reader.Next(ctx, lookBatch, readWait)
		if err != nil {
			return sum, err
		}
		for _, m := range messages {
			if m.Sequence >= until {
				return sum, nil
			}
			i, ok, err := w.item(m)
			if err != nil {
				return sum, fmt.Errorf("message %d on %s: %w", m.Sequence, m.Subject, err)
			}
			if _, sent := slices.BinarySearch(done, m.Sequence); ok && !sent {
				sum = plus(sum, i.weight)
			}
		}
	}
}
