// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

const (
	// maxRequests bounds the requests that are known: some MiB.
	maxRequests = 10_000
	// retryPause is between tries to read a bucket that does not answer.
	retryPause = 5 * time.Second
	// anew is how often the bucket is read from its beginning: it may have been made
	// anew, and what is in it lasts no longer.
	anew = wire.RequestTTL
	// forever is longer than there is anything to wait for.
	forever = 24 * time.Hour
)

// request is what a consumer asks for, until it lapses.
type request struct {
	wire.SamplingRequest
	until time.Time // by our clock
}

// Run follows what consumers ask for until ctx ends. While NATS is away, requests
// lapse.
func (h *Hub) Run(ctx context.Context, js jetstream.JetStream) error {
	for said := ""; ctx.Err() == nil; {
		err := h.watch(ctx, js)
		if ctx.Err() != nil || err == nil {
			continue
		}
		if err.Error() != said {
			said = err.Error()
			h.cfg.Logger.Warn("what consumers ask for cannot be followed", "error", err)
		}
		h.pause(ctx)
	}
	return nil
}

// pause lets requests lapse meanwhile.
func (h *Hub) pause(ctx context.Context) {
	for end := time.Now().Add(retryPause); ctx.Err() == nil && time.Now().Before(end); {
		select {
		case <-ctx.Done():
		case <-time.After(min(time.Until(end), h.lapse(time.Now()))):
		}
	}
}

// watch follows the bucket for a while. It returns nil where it is to be read anew.
func (h *Hub) watch(ctx context.Context, js jetstream.JetStream) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	asking, stop := context.WithTimeout(ctx, retryPause)
	defer stop()
	kv, err := js.KeyValue(asking, wire.RequestBucket(h.cfg.Site))
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return errors.New("no consumer can ask for a rate: the Site's bucket of requests is not there yet")
	}
	if err != nil {
		return err
	}
	status, err := kv.Status(asking)
	if err != nil {
		return err
	}
	ttl := cmp.Or(status.TTL(), wire.RequestTTL)
	w, err := kv.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = w.Stop() }()
	reconnected := js.Conn().StatusChanged(nats.CONNECTED)
	defer js.Conn().RemoveStatusListener(reconnected)
	end := time.NewTimer(anew)
	defer end.Stop()
	found := map[string]bool{} // nil once what was there is read
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-reconnected: // the watch would find out later, by what it misses
			return nil
		case <-end.C:
			return nil
		case <-time.After(h.lapse(time.Now())):
		case e, ok := <-w.Updates():
			switch {
			case !ok:
				return errors.New("the watch on the bucket of requests ended")
			case e == nil:
				h.keep(found)
				found = nil
			default:
				if found != nil {
					found[e.Key()] = true
				}
				h.take(e, ttl, found != nil)
			}
		}
	}
}

// take notes a request that lasts for ttl, or that one is withdrawn. Replayed ones have lasted for a
// while: the server's clock says since when.
func (h *Hub) take(e jetstream.KeyValueEntry, ttl time.Duration, replayed bool) {
	now := time.Now()
	var next *request
	if e.Operation() == jetstream.KeyValuePut {
		r, err := read(e)
		if err != nil {
			h.cfg.Logger.Warn("what a consumer asks for cannot be read", "key", e.Key(), "error", err)
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
	was, stood := h.requests[e.Key()]
	switch {
	case next != nil && !stood && len(h.requests) >= maxRequests:
		h.cfg.Logger.Warn("more rates are asked for than are kept: this one is passed over", "key", e.Key(), "kept", maxRequests)
		return
	case next != nil:
		h.requests[e.Key()] = *next
		h.replan(next.Instrument)
	case stood:
		delete(h.requests, e.Key())
		h.replan(was.Instrument)
	}
}

func read(e jetstream.KeyValueEntry) (wire.SamplingRequest, error) {
	r, err := wire.DecodeSamplingRequest(e.Value())
	if err != nil {
		return r, err
	}
	if key := wire.SamplingRequestKey(r.Instrument, r.Channel, r.Consumer); key != e.Key() {
		return r, fmt.Errorf("the request under it is that of %s: %w", key, wire.ErrMalformed)
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

// lapse forgets what nobody renewed, and returns after how long the next lapses.
func (h *Hub) lapse(now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := forever
	for key, r := range h.requests {
		if left := r.until.Sub(now); left > 0 {
			next = min(next, left)
			continue
		}
		delete(h.requests, key)
		h.replan(r.Instrument)
	}
	return next
}

// replan looks at what is asked of an instrument. The caller holds mu.
func (h *Hub) replan(instrument string) {
	if t := h.told[instrument]; t != nil {
		h.plan(instrument, t)
	}
}
