// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"time"

	"github.com/substorm/substorm/feed-server/hub"
	"github.com/substorm/substorm/internal/kvbucket"
	"github.com/substorm/substorm/internal/wire"
)

// Delivered is what is measured of a consumer of delivery NATS: it has no connection
// here.
type Delivered struct {
	// Asks: it asks for messages, or did so in the last minute.
	Asks bool
	Lag  hub.Lag
	// Place up to which it has acknowledged, or was given, all.
	Place wire.FeedToken
	// Messages that it took, beside those that Given counts; Unsized: the number of their bytes is
	// unknown.
	Messages uint64
	Unsized  bool
	// LastGap is when a gap was last reported to it, by any pod.
	LastGap time.Time
}

// Deliver has a consumer of delivery NATS measured by the caller, which serves it, and reported by
// this pod alone, until end is called. The Consumer is its meter.
func (c *Consumers) Deliver(entry wire.ConsumerEntry, by func(now time.Time) Delivered) (m *Consumer, end func()) {
	name := entry.Consumer
	m = newConsumer(&c.sent)
	m.flow, m.by = entry.Flow, by
	c.mu.Lock()
	c.all[name] = m
	delete(c.said, name)
	c.mu.Unlock()
	return m, func() {
		c.reporting.Lock()
		defer c.reporting.Unlock()
		c.mu.Lock()
		if c.all[name] == m {
			delete(c.all, name)
		}
		_, reported := c.said[name]
		delete(c.said, name)
		c.mu.Unlock()
		if reported && c.kv != nil {
			ctx, cancel := context.WithTimeout(context.Background(), reportTimeout)
			defer cancel()
			_ = kvbucket.Forget(ctx, c.cfg.JetStream, c.kv.Bucket(), wire.ConsumerStatusKey(name, c.cfg.Pod)) // one that stays grows old
		}
	}
}
