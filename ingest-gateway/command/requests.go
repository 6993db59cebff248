// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/watch"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// maxRequests bounds the requests that are known: some MiB.
	maxRequests = 10_000
	// lapseInterval is how often the hub looks for requests that were not renewed.
	lapseInterval = time.Second
)

// request is what a consumer asks for, until it lapses.
type request struct {
	wire.SamplingRequest
	until time.Time // by our clock
}

// Run follows what consumers ask for until ctx ends. While NATS is away, requests
// lapse.
func (h *Hub) Run(ctx context.Context, js jetstream.JetStream) {
	var lapsing sync.WaitGroup
	defer lapsing.Wait()
	lapsing.Go(func() { h.lapsing(ctx) })
	var found map[string]bool // nil once what was there is read
	var ttl time.Duration
	watch.Run(ctx, js, watch.Config{
		Bucket: wire.RequestBucket(h.cfg.Site), What: "the requests of consumers", Logger: h.cfg.Logger,
		Begin: func(b watch.Bucket) { found, ttl = map[string]bool{}, cmp.Or(b.TTL, wire.RequestTTL) },
		Take: func(e jetstream.KeyValueEntry) {
			if found != nil {
				found[e.Key()] = true
			}
			h.take(e, ttl, found != nil)
		},
		Settle: func() {
			if found != nil {
				h.keep(found)
				found = nil
			}
		},
	})
}

// lapsing forgets requests that are not renewed, until ctx ends.
func (h *Hub) lapsing(ctx context.Context) {
	tick := time.NewTicker(lapseInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			h.lapse(now)
		}
	}
}

// take notes a request that lasts for ttl, or that one is cancelled. Replayed ones have lasted for a
// while: the server's clock says since when.
func (h *Hub) take(e jetstream.KeyValueEntry, ttl time.Duration, replayed bool) {
	now := time.Now()
	var next *request
	if e.Operation() == jetstream.KeyValuePut {
		r, err := read(e)
		if err != nil {
			h.cfg.Logger.Warn("cannot read the request of a consumer", "key", e.Key(), "error", err)
			return
		}
		since := now
		if replayed && e.Created().Before(now) {
			since = e.Created()
		}
		next = &request{r, since.Add(ttl)}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	before, stood := h.requests[e.Key()]
	switch {
	case next != nil && !stood && len(h.requests) >= maxRequests:
		h.cfg.Logger.Warn("too many sampling requests; ignoring this one", "key", e.Key(), "kept", maxRequests)
		return
	case next != nil:
		h.requests[e.Key()] = *next
		h.replan(next.Instrument)
	case stood:
		delete(h.requests, e.Key())
		h.replan(before.Instrument)
	}
}

func read(e jetstream.KeyValueEntry) (wire.SamplingRequest, error) {
	r, err := wire.Decode[wire.SamplingRequest](e.Value())
	if err != nil {
		return r, err
	}
	if key := wire.SamplingRequestKey(r.Instrument, r.Channel, r.Consumer); key != e.Key() {
		return r, fmt.Errorf("the key holds the request of %s: %w", key, wire.ErrMalformed)
	}
	return r, nil
}

// keep forgets what was not found in the bucket.
func (h *Hub) keep(found map[string]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, r := range h.requests {
		if !found[key] {
			delete(h.requests, key)
			h.replan(r.Instrument)
		}
	}
}

// lapse forgets requests that were not renewed.
func (h *Hub) lapse(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, r := range h.requests {
		if !now.Before(r.until) {
			delete(h.requests, key)
			h.replan(r.Instrument)
		}
	}
}

// replan looks at what is asked of an instrument. The caller holds mu.
func (h *Hub) replan(instrument string) {
	if t := h.told[instrument]; t != nil {
		h.plan(instrument, t)
	}
}
