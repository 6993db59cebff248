// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/feed-server/hub"
	"github.com/substorm/substorm/feed-server/session"
	"github.com/substorm/substorm/feed-server/state"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// openTimeout is how long the streams that are read may take to be known.
	openTimeout = 10 * time.Second
	// ackTimeout is how long the stream that is filled may take to answer.
	ackTimeout = 5 * time.Second
)

// filler fills the stream of a consumer of mode Latest or Sample: as a connection would be
// given what is due, as fast as it may be. The stream itself replaces messages that the
// consumer does not take in time, for it has one message of each subject. The stream of a
// consumer that is given WIS2 notifications has all of them, up to its size.
type filler struct {
	*delivery
	*worker
	consumer string
	stream   string
	lease    *stream.Lease
	// epoch of the stream that is filled, and publisher that fills it: of its own, for
	// what one stream does not answer would count against all of a publisher's.
	epoch     string
	publisher jetstream.JetStream
	// last is the last sequence that the stream had when it was looked at.
	last    uint64
	filters filters
	// incarnation distinguishes this filling from others, and items is the number of items of each
	// subject in it.
	incarnation string
	items       map[string]uint64
	gaps        uint64
}

// fill works for a consumer that has a stream of its own.
func (d *delivery) fill(ctx context.Context, by *worker, lease *stream.Lease) error {
	s := by.selection
	by.fills++
	f := &filler{delivery: d, worker: by, consumer: s.Consumer.Consumer, stream: wire.ConsumerStream(d.cfg.Site, s.Consumer.Consumer),
		lease: lease, incarnation: fmt.Sprintf("%s.%d", d.cfg.Incarnation, by.fills), items: map[string]uint64{}}
	f.filters.selection = s
	var err error
	var is jetstream.StreamState
	if f.epoch, is, err = stream.Epoch(ctx, d.cfg.JetStream, f.stream); err != nil {
		return err
	}
	f.last = is.LastSeq
	if f.publisher, err = newPublisher(d.cfg.JetStream.Conn()); err != nil {
		return err
	}
	defer f.publisher.CleanupPublisher()
	place, err := f.resume(ctx)
	if err != nil {
		return err
	}
	f.measured.Store(&state.Delivered{Place: place})
	reading, err := f.open(ctx, place)
	if err != nil {
		return err
	}
	defer reading.Close()
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return reading.Run(ctx) })
	both.Go(func() error { return f.watchConsumer(ctx, reading) })
	return both.Wait()
}

// open begins to read behind a place.
func (f *filler) open(ctx context.Context, place wire.FeedToken) (*session.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	cfg := session.Config{
		Consumer: f.consumer, Flow: f.selection.Consumer.Flow, Notices: f.selection.Notices, Telemetry: f.selection.Telemetry,
		Token: place, Hub: f.cfg.Hub, Slots: f.cfg.Slots, Priorities: f.cfg.Priorities, Meter: f.meter, Write: f.write, Logger: f.log,
		Filter: func() *session.Filter { return f.filters.of(f.cfg.Registry.Snapshot()) },
	}
	s, err := session.New(ctx, cfg)
	if errors.Is(err, hub.ErrNoPlace) { // of a stream that lost its end
		cfg.Token = wire.FeedToken{}
		s, err = session.New(ctx, cfg)
	}
	return s, err
}

// errAnew: the stream that is filled was recreated, or lost its memory when its servers restarted,
// and is empty.
var errAnew = errors.New("the consumer's stream was recreated; filling it from the beginning")

// watchConsumer looks how the consumer does, until the stream is not the one it was.
func (f *filler) watchConsumer(ctx context.Context, reading *session.Session) error {
	tick := time.NewTicker(f.cfg.WatchInterval)
	defer tick.Stop()
	var waits waiting
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := f.looks.Wait(ctx); err != nil {
			return err
		}
		is, holds, err := stream.Epoch(ctx, f.cfg.JetStream, f.stream)
		if err != nil {
			return err
		}
		if is != f.epoch || holds.LastSeq < f.last {
			return errAnew
		}
		f.last = holds.LastSeq
		now := time.Now()
		d := state.Delivered{Lag: reading.Lag(), Place: reading.Place()}
		f.places.note(f.consumer, wire.FilledPlace{UID: f.selection.Consumer.UID, Epoch: f.epoch, Token: d.Place.String(), Last: f.last})
		durable, err := f.cfg.JetStream.Consumer(ctx, f.stream, f.selection.Consumer.DurableName())
		if err == nil {
			info := durable.CachedInfo()
			waits.first(ctx, f.cfg.JetStream, f.stream, info, info.AckFloor.Stream+1)
			d.Lag = d.Lag.Plus(lagOf(info, waits.at))
			d.Asks = isAsking(info, now)
		} else if !errors.Is(err, jetstream.ErrConsumerNotFound) { // the operator recreates it
			return fmt.Errorf("durable %s of %s: %w", f.selection.Consumer.DurableName(), f.stream, err)
		}
		f.measured.Store(&d)
	}
}

// filters is what a consumer may have, as the registry says now.
type filters struct {
	selection registry.Selection
	current   atomic.Pointer[filtered]
}

type filtered struct {
	snapshot *registry.Snapshot
	filter   *session.Filter
}

func (f *filters) of(s *registry.Snapshot) *session.Filter {
	if is := f.current.Load(); is != nil && is.snapshot == s {
		return is.filter
	}
	sel, err := s.Select(f.selection.Consumer.Consumer)
	if err != nil { // it is gone, and its worker is being stopped
		sel = f.selection
	}
	filter := &session.Filter{Notices: sel.Notices != "", Telemetry: sel.Telemetry != "", Backfill: sel.Feed.Backfill,
		Channels: sel.Channels, Site: sel.Site, Instruments: s.Readable(sel, sel.Reader(), time.Now())}
	f.current.Store(&filtered{s, filter})
	return filter
}
