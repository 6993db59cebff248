// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"fmt"
	"time"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// saveInterval is how often a position is saved while nothing is sent.
const saveInterval = 30 * time.Second

// begin finds where the copy stopped, or where it begins.
func (c *copier) begin(ctx context.Context, w way) (epoch string, err error) {
	name := w.follows(c.cfg.Site, c.instrument).Stream
	epoch, _, err = stream.Epoch(ctx, c.cfg.JetStream, name)
	if err != nil {
		return "", err
	}
	data, err := c.cell.Load(ctx)
	if err != nil {
		return "", err
	}
	var cursor wire.ForwardCursor
	if data != nil {
		if cursor, err = wire.Decode[wire.ForwardCursor](data); err != nil {
			return "", fmt.Errorf("cursor %s: %w", wire.ForwardCursorKey(c.instrument), err)
		}
	}
	switch {
	case data == nil || cursor.Protocol != c.entry.Protocol:
		next, err := stream.FirstSince(ctx, c.cfg.JetStream, name, time.Now().Add(-announcedBefore))
		if err != nil {
			return "", err
		}
		cursor = wire.ForwardCursor{Protocol: c.entry.Protocol, Epoch: epoch, Next: next, SeenNext: next}
		c.log.Info("a copy begins", "protocol", c.entry.Protocol, "until", c.entry.Until)
	case cursor.Epoch != epoch:
		c.log.Warn("the stream was recreated: what it had for the copy is lost", "stream", name, "items", backlog(cursor).Items)
		cursor.Epoch, cursor.Next, cursor.Done, cursor.SeenNext = epoch, 1, nil, 1
		cursor.Dropped = plus(cursor.Dropped, backlog(cursor))
	}
	c.mu.Lock()
	c.cursor, c.window = cursor, newWindow(cursor)
	c.mu.Unlock()
	return epoch, c.save(ctx)
}

// notePosition notes how far all is sent. If nothing waits and the look ahead is no further, the items that were seen and
// neither sent nor left out are those that the stream lost meanwhile.
func (c *copier) notePosition(ctx context.Context) error {
	c.mu.Lock()
	c.cursor.Next, c.cursor.Done = c.window.position()
	lost := wire.ForwardTotals{}
	if len(c.window.items) == 0 && c.cursor.SeenNext <= c.cursor.Next {
		lost = backlog(c.cursor)
		c.cursor.Dropped = plus(c.cursor.Dropped, lost)
	}
	c.mu.Unlock()
	if lost.Items > 0 {
		c.saysLost(lost)
		return c.save(ctx)
	}
	return c.saveNowAndThen(ctx)
}

// saveLast saves the position at the end: how far the look ahead came is saved
// only now and then.
func (c *copier) saveLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	c.mu.Lock()
	began := c.cursor.Epoch != ""
	c.mu.Unlock()
	if began {
		_ = c.save(ctx) // the next one counts again
	}
}

func (c *copier) saveNowAndThen(ctx context.Context) error {
	c.saving.Lock()
	due := time.Since(c.saved) >= saveInterval
	c.saving.Unlock()
	if !due {
		return nil
	}
	return c.save(ctx)
}

// save writes the position.
func (c *copier) save(ctx context.Context) error {
	if err := c.cfg.Lease.Check(); err != nil {
		return err
	}
	c.saving.Lock()
	defer c.saving.Unlock()
	c.mu.Lock()
	value, err := wire.Encode(c.cursor)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if err := c.cell.Store(ctx, value); err != nil {
		return err
	}
	c.saved = time.Now()
	return nil
}

// backlog is what was seen and is neither sent nor dropped. The sender may be a
// little further than the look ahead.
func backlog(c wire.ForwardCursor) wire.ForwardTotals {
	return minus(c.Seen, plus(c.Sent, c.Dropped))
}

func plus(a, b wire.ForwardTotals) wire.ForwardTotals {
	return wire.ForwardTotals{Items: a.Items + b.Items, Bytes: a.Bytes + b.Bytes}
}

// minus stops at nothing.
func minus(a, b wire.ForwardTotals) wire.ForwardTotals {
	return wire.ForwardTotals{Items: a.Items - min(a.Items, b.Items), Bytes: a.Bytes - min(a.Bytes, b.Bytes)}
}
