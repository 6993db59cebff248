// SPDX-License-Identifier: Apache-2.0

package feedserver

import (
	"context"
	"log/slog"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/feed-server/hub"
	"github.com/substorm/substorm/internal/registry"
)

// hubs follow the streams that have readers: each from its first use until no Feed names it any
// more.
type hubs struct {
	ctx context.Context
	js  jetstream.JetStream
	// ring is what all of them hold of their streams' ends.
	ring *hub.Budget
	log  *slog.Logger

	mu      sync.Mutex
	all     map[string]*followed
	running sync.WaitGroup
}

type followed struct {
	*hub.Hub
	stop context.CancelFunc
}

func newHubs(ctx context.Context, js jetstream.JetStream, ring int64, log *slog.Logger) *hubs {
	return &hubs{ctx: ctx, js: js, ring: hub.NewBudget(int(ring)), log: log, all: map[string]*followed{}}
}

// of returns the hub of a stream.
func (h *hubs) of(stream string) *hub.Hub {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.all[stream]
	if f == nil {
		ctx, stop := context.WithCancel(h.ctx)
		f = &followed{hub.New(hub.Config{JetStream: h.js, Stream: stream, Budget: h.ring, Logger: h.log}), stop}
		h.all[stream] = f
		h.running.Go(func() { f.Run(ctx) })
	}
	return f.Hub
}

// run stops hubs that no Feed needs, until ctx ends.
func (h *hubs) run(ctx context.Context, r *registry.Registry) error {
	for {
		snapshot, changed := r.Watch()
		if snapshot.Revision > 0 {
			h.keep(snapshot)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

func (h *hubs) keep(snapshot *registry.Snapshot) {
	needed := map[string]bool{}
	for _, f := range snapshot.Feeds {
		needed[f.Notices], needed[f.Telemetry] = true, true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for stream, f := range h.all {
		if !needed[stream] {
			f.stop()
			delete(h.all, stream)
		}
	}
}
