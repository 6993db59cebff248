// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/feed-server/archive"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/watch"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// lookedFor is how long the board is kept after the last request.
	lookedFor = time.Minute
	// settleIn bounds the wait for a board that has slept.
	settleIn = time.Second
	// picturesEvery is how often is looked for newer pictures: the catalog holds the newest
	// objects in memory once it was asked for them.
	picturesEvery = time.Second
	// maxPicture is the size of a picture in bytes up to which it is shown: the archive has
	// larger ones.
	maxPicture = 8 << 20
)

// pictureTypes are the types that browsers show.
var pictureTypes = []string{"image/png", "image/jpeg", "image/webp"}

// board is what is known of a Site's instruments beside the registry. It sleeps while no page is
// open.
type board struct {
	cfg Config
	// idleAfter and patience are lookedFor and settleIn; tests have others.
	idleAfter, patience time.Duration
	// woken has a value if there was a request since the board woke.
	woken chan struct{}

	mu     sync.Mutex
	looked time.Time
	// settled is closed when the board has learned what there was when it woke: all that was reported, and the newest pictures. Its knowledge from
	// before it slept is stale.
	settled            chan struct{}
	reported, pictured bool
	// received is when data of an instrument last arrived, by gateway.
	received map[string]map[string]time.Time
	// spoke is when a gateway of a pool last said anything.
	spoke map[string]time.Time
	// level of space weather, as last reported by the operator; nil: the Site has none.
	level *wire.SurgeLevel
	// pictures are given away, and not changed any more.
	pictures map[string]wire.Record
	// candidates are the instruments of a registry that may send pictures.
	snapshot   *registry.Snapshot
	candidates []wire.InstrumentEntry
}

func newBoard(cfg Config) *board {
	return &board{cfg: cfg, idleAfter: lookedFor, patience: settleIn, woken: make(chan struct{}, 1), settled: make(chan struct{}),
		received: map[string]map[string]time.Time{}, spoke: map[string]time.Time{}}
}

// waitSettled records a request, and waits a moment until the board has settled.
func (b *board) waitSettled(ctx context.Context, s *registry.Snapshot) {
	settled := b.keep(s)
	patience := time.NewTimer(b.patience)
	defer patience.Stop()
	select {
	case <-settled:
	case <-patience.C:
	case <-ctx.Done():
	}
}

// keep records a request that looks at the instruments of a registry. The returned channel is
// closed when everything that is to be shown is known.
func (b *board) keep(s *registry.Snapshot) (settled <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looked = time.Now()
	if b.snapshot != s {
		b.snapshot, b.candidates = s, candidates(s)
	}
	select {
	case b.woken <- struct{}{}:
	default:
	}
	return b.settled
}

// run learns while there are requests.
func (b *board) run(ctx context.Context) {
	for {
		select {
		case <-b.woken:
			if !b.idle() { // there was a request since it fell asleep
				b.learnUntilIdle(ctx)
			}
		case <-ctx.Done():
			return
		}
	}
}

// learnUntilIdle learns until there are no more requests.
func (b *board) learnUntilIdle(ctx context.Context) {
	ctx, sleep := context.WithCancel(ctx)
	var learning sync.WaitGroup
	defer b.unsettle()
	defer learning.Wait()
	defer sleep()
	learning.Go(func() {
		watch.Run(ctx, b.cfg.JetStream, watch.Config{
			Bucket: wire.StatusBucket(b.cfg.Site), What: "what gateways report", Logger: b.cfg.Logger,
			Begin: func(watch.Bucket) {}, Take: b.take, Settle: func() { b.settle(&b.reported) },
		})
	})
	learning.Go(func() { b.watchPictures(ctx) })
	for tick := time.Tick(picturesEvery); !b.idle(); {
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}
	}
}

// idle reports whether there was no request for idleAfter.
func (b *board) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Since(b.looked) > b.idleAfter
}

// take notes a report. It ignores values that cannot be read.
func (b *board) take(e jetstream.KeyValueEntry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	instrument, gateway, ok := wire.ParseStatusKey(e.Key())
	switch {
	case e.Key() == wire.SurgeStatusKey:
		b.takeLevel(e)
	case !ok:
	case e.Operation() != jetstream.KeyValuePut:
		delete(b.received[instrument], gateway)
	case instrument == "":
		if s, err := wire.Decode[wire.GatewayStatus](e.Value()); err == nil && e.Created().After(b.spoke[s.Pool]) {
			b.spoke[s.Pool] = e.Created()
		}
	default:
		s, err := wire.Decode[wire.InstrumentStatus](e.Value())
		if err != nil {
			return
		}
		if b.received[instrument] == nil {
			b.received[instrument] = map[string]time.Time{}
		}
		b.received[instrument][gateway] = s.LastReceived
	}
}

// takeLevel notes the level of space weather. One that cannot be read is none; the lock is held.
func (b *board) takeLevel(e jetstream.KeyValueEntry) {
	b.level = nil
	if e.Operation() != jetstream.KeyValuePut {
		return
	}
	if is, err := wire.Decode[wire.SurgeLevel](e.Value()); err == nil {
		b.level = &is
	} else {
		b.cfg.Logger.Warn("the level of space weather cannot be read, and is not shown", "error", err)
	}
}

// settle notes that the reports or the pictures are there, and notifies the waiting requests when
// both are.
func (b *board) settle(known *bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if *known {
		return
	}
	if *known = true; b.reported && b.pictured {
		close(b.settled)
	}
}

// unsettle has who looks next wait for what is new by then.
func (b *board) unsettle() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reported && b.pictured {
		b.settled = make(chan struct{})
	}
	b.reported, b.pictured = false, false
}

// seen is what a board knows at a moment. It is immutable.
type seen struct {
	// last is when data of an instrument last arrived, as far as gateways reported, and
	// reported when one of a pool last said anything.
	last, reported map[string]time.Time
	// pictures are the instruments' newest objects where these are pictures.
	pictures map[string]wire.Record
	// level of space weather; nil: the Site has none.
	level *wire.SurgeLevel
}

// copyState returns what is known.
func (b *board) copyState() seen {
	b.mu.Lock()
	defer b.mu.Unlock()
	is := seen{last: make(map[string]time.Time, len(b.received)), reported: maps.Clone(b.spoke), pictures: b.pictures, level: b.level}
	for instrument, by := range b.received {
		for _, at := range by {
			if at.After(is.last[instrument]) {
				is.last[instrument] = at
			}
		}
	}
	return is
}

// candidates are the instruments that may send pictures: not the instruments that send only
// datagrams, for which the catalog would search every day for an object.
func candidates(s *registry.Snapshot) []wire.InstrumentEntry {
	var all []wire.InstrumentEntry
	for _, in := range s.Instruments {
		if strings.HasPrefix(in.MediaType, "image/") || sendsObjects(&in) {
			all = append(all, in)
		}
	}
	return all
}

// watchPictures looks for the newest pictures. If the catalog does not know them yet, it reads
// manifests: pages wait for that as long as for reports, a moment.
func (b *board) watchPictures(ctx context.Context) {
	for tick := time.Tick(picturesEvery); ; {
		b.mu.Lock()
		candidates := b.candidates
		b.mu.Unlock()
		pictures := make(map[string]wire.Record, len(candidates))
		for i := range candidates {
			in := &candidates[i]
			if r, found := b.cfg.Catalog.Latest(in.Instrument, ""); found && isPicture(*in, &r) {
				pictures[in.Instrument] = r
			}
			if ctx.Err() != nil {
				return
			}
		}
		b.mu.Lock()
		b.pictures = pictures
		b.mu.Unlock()
		b.settle(&b.pictured)
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}
	}
}

func isPicture(in wire.InstrumentEntry, r *wire.Record) bool {
	return r.Size <= maxPicture && slices.Contains(pictureTypes, archive.MediaType(in, r))
}

func sendsObjects(in *wire.InstrumentEntry) bool {
	return slices.ContainsFunc(in.Listeners, func(l wire.ListenerEntry) bool { return l.Protocol != wire.ProtocolUDP })
}
