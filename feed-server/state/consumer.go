// SPDX-License-Identifier: Apache-2.0

package state

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/substorm/substorm/feed-server/hub"
	"github.com/substorm/substorm/feed-server/session"
	"github.com/substorm/substorm/internal/wire"
)

// Reader is a connection that is measured: a session.Session.
type Reader interface {
	Lag() hub.Lag
	Place() wire.FeedToken
}

// Consumer is what this process gave one consumer, over all of its connections. It
// is a session.Meter.
type Consumer struct {
	mu       sync.Mutex
	flow     wire.FlowEntry
	readers  map[Reader]struct{}
	messages uint64
	bytes    uint64
	// sent counts the bytes of all consumers.
	sent    *atomic.Uint64
	dropped map[string]uint64
	gaps    uint64
	lastGap time.Time
	tracker Tracker
	samples samples
	// by measures a consumer of delivery NATS, else nil.
	by func(now time.Time) Delivered
	// status as it was measured last.
	status wire.ConsumerStatus
}

func newConsumer(sent *atomic.Uint64) *Consumer {
	return &Consumer{sent: sent, readers: map[Reader]struct{}{}, dropped: map[string]uint64{}}
}

var _ session.Meter = (*Consumer)(nil)

// Given counts what was written.
func (c *Consumer) Given(entries []session.Entry, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes += uint64(bytes)
	c.sent.Add(uint64(bytes))
	for _, e := range entries {
		if e.Message != nil {
			c.messages++
			if c.flow.Mode == wire.FlowSample {
				c.samples.add(e.Message.Subject)
			}
		}
	}
}

// Dropped counts what is not given, by reason.
func (c *Consumer) Dropped(reason string, count uint64) {
	if count == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropped[reason] += count
}

// Gap counts a gap record, and the messages that it is about.
func (c *Consumer) Gap(reason wire.GapReason, count uint64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gaps++
	c.dropped[string(reason)] += count
	c.lastGap = now.UTC()
}

// Opened and Closed say that a connection came, and went.
func (c *Consumer) Opened(r Reader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readers[r] = struct{}{}
}

// Closed is Opened's end.
func (c *Consumer) Closed(r Reader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.readers, r)
}

// measure returns what is to be reported. Call it every wire.GatewayReportInterval.
func (c *Consumer) measure(now time.Time) wire.ConsumerStatus {
	c.mu.Lock()
	readers := slices.Collect(maps.Keys(c.readers))
	c.mu.Unlock()
	// Sessions are asked without the lock: they take theirs, and then this one.
	var worst hub.Lag
	for _, r := range readers {
		if l := r.Lag(); l.Messages > 0 && (worst.Messages == 0 || l.Since.Before(worst.Since)) {
			worst = l
		}
	}
	connected, taken, unsized, token := len(readers), uint64(0), false, ""
	if len(readers) == 1 {
		token = readers[0].Place().String()
	}
	var lastGap time.Time
	if c.by != nil {
		d := c.by(now)
		worst, taken, unsized, lastGap = d.Lag, d.Messages, d.Unsized, d.LastGap
		if d.Place != (wire.FeedToken{}) {
			token = d.Place.String()
		}
		if d.Asks {
			connected = 1
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if lastGap.After(c.lastGap) {
		c.lastGap = lastGap
	}
	s := wire.ConsumerStatus{
		Connections: connected, LagMessages: int64(worst.Messages), Token: token,
		Messages: c.messages + taken, Dropped: maps.Clone(c.dropped), Gaps: c.gaps,
		AchievedMillis: c.samples.interval(now).Milliseconds(),
	}
	if !worst.Unsized {
		s.LagBytes = &worst.Bytes
	}
	if bytes := c.bytes; !unsized {
		s.Bytes = &bytes
	}
	if !worst.Since.IsZero() {
		s.LagMillis = max(0, now.Sub(worst.Since).Milliseconds())
	}
	if !c.lastGap.IsZero() {
		at := c.lastGap
		s.LastGap = &at
	}
	s.State = c.tracker.State(Facts{
		Connected: connected > 0, Since: worst.Since, LastGap: c.lastGap,
		Interval: time.Duration(c.flow.IntervalMillis) * time.Millisecond,
	}, now)
	c.status = s
	return s
}

// last returns what was measured last.
func (c *Consumer) last() wire.ConsumerStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// samples counts how often each source was sampled.
type samples struct {
	sources map[string]uint64
	began   time.Time
	mean    time.Duration
}

func (s *samples) add(source string) {
	if s.sources == nil {
		s.sources = map[string]uint64{}
	}
	s.sources[source]++
}

// samplesWindow is how long samples are counted for one figure.
const samplesWindow = 10 * time.Second

// interval returns the mean interval between a source's samples, of the last
// window; 0 before the first is over.
func (s *samples) interval(now time.Time) time.Duration {
	if s.began.IsZero() {
		s.began = now
		return 0
	}
	window := now.Sub(s.began)
	if window < samplesWindow {
		return s.mean
	}
	count := uint64(0)
	for _, n := range s.sources {
		count += n
	}
	s.mean = 0
	if count > 0 {
		s.mean = window * time.Duration(len(s.sources)) / time.Duration(count)
	}
	s.sources, s.began = nil, now
	return s.mean
}
