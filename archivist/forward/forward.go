// SPDX-License-Identifier: Apache-2.0

// Package forward sends copies of what instruments send to other servers: old
// ones, that are still in use for a while. It follows the base streams behind
// the receipt and never in its way: an old server that is away, slow or hangs
// makes a backlog, and nothing else.
//
// A copy is at least once and in the order in which objects were announced. The position is saved after sending, so
// that after a death the last of it is sent again; no server that writes what it gets can tell us better.
package forward

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// look is how often it is looked which copies are declared.
	look = 500 * time.Millisecond
	// announcedBefore is how far back a new copy begins: what was received after
	// its declaration is announced no longer before the lease holder sees that,
	// not even where the lease passes to another meanwhile.
	announcedBefore = 30 * time.Second
)

// Config says which archivist sends copies, and of what.
type Config struct {
	holder.Base

	// Declared returns the entries of all instruments of the registry, and false
	// before there is one.
	Declared func() ([]wire.InstrumentEntry, bool)
	// Networks to which copies may go beside public addresses.
	Networks []netip.Prefix

	Metrics *Metrics

	// stall is how long a server may take nothing, or not end a connection, before the connection
	// is given up and retried; 0 is the default.
	stall time.Duration
}

// Forwarder sends copies for as long as one lease lasts.
type Forwarder struct {
	cfg     Config
	cursors jetstream.KeyValue
	reports jetstream.KeyValue
	running map[string]*running
}

// running is a copy on its way.
type running struct {
	entry wire.ForwardEntry
	stop  context.CancelFunc
	done  chan struct{}
}

// New returns a forwarder; Run runs it.
func New(cfg Config) *Forwarder {
	if cfg.stall == 0 {
		cfg.stall = stall
	}
	return &Forwarder{cfg: cfg, running: make(map[string]*running)}
}

// Run sends until ctx ends or the lease is lost. Errors: those of ctx, stream.ErrLeaseLost, and what keeps JetStream
// from answering at the beginning. An error that stops one copy is logged, counted, reported and retried.
func (f *Forwarder) Run(ctx context.Context) error {
	var err error
	if f.cursors, err = f.cfg.JetStream.KeyValue(ctx, wire.CursorBucket(f.cfg.Site)); err != nil {
		return fmt.Errorf("bucket %s: %w", wire.CursorBucket(f.cfg.Site), err)
	}
	if f.reports, err = f.cfg.JetStream.KeyValue(ctx, wire.StatusBucket(f.cfg.Site)); err != nil {
		return fmt.Errorf("bucket %s: %w", wire.StatusBucket(f.cfg.Site), err)
	}
	defer f.stopAll()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for first := true; ; first = false {
		if err := f.cfg.Lease.Check(); err != nil {
			return err
		}
		if declared, known := f.cfg.Declared(); known {
			f.reconcile(ctx, declared)
		} else if first {
			f.cfg.Log.Debug("copies wait for the registry")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reconcile begins and ends copies as they are declared.
func (f *Forwarder) reconcile(ctx context.Context, declared []wire.InstrumentEntry) {
	wanted := make(map[string]wire.ForwardEntry)
	for _, e := range declared {
		if e.Forward != nil {
			wanted[e.Instrument] = *e.Forward
		}
	}
	var ended sync.WaitGroup
	for instrument, r := range f.running {
		entry, ok := wanted[instrument]
		if ok && entry.Address == r.entry.Address && entry.Protocol == r.entry.Protocol && entry.Until.Equal(r.entry.Until) {
			delete(wanted, instrument)
			continue
		}
		delete(f.running, instrument)
		r.stop()
		ended.Go(func() {
			<-r.done
			if !ok {
				f.forget(ctx, instrument)
			}
		})
	}
	ended.Wait()
	for instrument, entry := range wanted {
		f.start(ctx, instrument, entry)
	}
}

func (f *Forwarder) start(ctx context.Context, instrument string, entry wire.ForwardEntry) {
	ctx, cancel := context.WithCancel(ctx)
	r := &running{entry: entry, stop: cancel, done: make(chan struct{})}
	f.running[instrument] = r
	c := &copier{
		cfg: &f.cfg, instrument: instrument, entry: entry, reports: f.reports, cell: stream.NewCell(f.cfg.JetStream, f.cursors, wire.ForwardCursorKey(instrument)),
		log: f.cfg.Log.With("instrument", instrument, "address", entry.Address),
	}
	go func() {
		defer close(r.done)
		c.run(ctx)
	}()
}

// forget removes what is known of a copy that is no longer declared: if it is declared again, it
// starts over.
func (f *Forwarder) forget(ctx context.Context, instrument string) {
	f.cfg.Metrics.forget(instrument)
	if f.cfg.Lease.Check() != nil {
		return
	}
	err := errors.Join(f.cursors.Delete(ctx, wire.ForwardCursorKey(instrument)), f.reports.Delete(ctx, wire.ForwardStatusKey(instrument)))
	if err != nil && ctx.Err() == nil {
		f.cfg.Log.Warn("cannot delete the position of a copy that is no longer declared", "instrument", instrument, "error", err)
	}
}

func (f *Forwarder) stopAll() {
	for _, r := range f.running {
		r.stop()
	}
	for instrument, r := range f.running {
		<-r.done
		f.cfg.Metrics.forget(instrument)
	}
}
