// SPDX-License-Identifier: Apache-2.0

package udp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/substorm/substorm/ingest-gateway/announce"
	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/ledger"
	"github.com/substorm/substorm/internal/load"
	"github.com/substorm/substorm/internal/wire"
)

// Announcer publishes telemetry messages, see announce.Announcer.
type Announcer interface {
	Telemetry(ctx context.Context, m announce.Telemetry, settled func(error)) error
}

// Config of a Receiver.
type Config struct {
	Source    PacketSource
	Registry  *intake.Registry
	Announcer Announcer
	Ledger    *ledger.Ledger
	// UnknownSenders takes datagrams of unknown senders; it says what each counts as that
	// it does not take, and what the others do by Settled. Nil drops them all.
	UnknownSenders interface {
		Datagram(wire.Datagram) wire.Cause
	}
	// Budget in bytes for datagrams that JetStream has not acknowledged yet. When it is spent, datagrams are dropped
	// and counted.
	Budget int64
	// NoSpace says whether nothing more may be kept on the disk: then datagrams are dropped and counted. Optional: then it always may.
	NoSpace func() bool
	// Gather is how long datagrams may wait in memory for those of other instruments, where the Instrument's acknowledge allows it and while
	// less than half of Budget is used; 0: no longer than all others, wire.TelemetryMaxAge.
	Gather time.Duration
	// Logger and Metrics may be left out.
	Logger  *slog.Logger
	Metrics prometheus.Registerer
}

// Receiver makes telemetry messages of datagrams. A message holds datagrams of one instrument, channel, port and UTC
// day; it closes at wire.MaxTelemetrySize, or at wire.TelemetryMaxAge or Gather, and is then on its way until JetStream has it.
type Receiver struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	memory  budget
	outbox  outbox

	mu    sync.RWMutex
	ports map[uint16]*port

	// opened wakes closeAged, which otherwise sleeps until nextClose, in nanoseconds since the Unix epoch; 0 for no time.
	opened    chan struct{}
	nextClose atomic.Int64
	began     time.Time
	strange   *rate.Limiter // logs of datagrams that no instrument claims
	hushed    atomic.Int64  // those not logged

	// packets and bytes that were read since the start.
	packets, bytes atomic.Uint64

	stopSource context.CancelFunc
	stopped    chan error // what the source's Run returned
	end        context.CancelFunc
	ended      sync.WaitGroup
}

const (
	logEvery = time.Second
	logBurst = 5
)

// NewReceiver starts to receive; Listen names the ports.
func NewReceiver(cfg Config) *Receiver {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	r := &Receiver{
		cfg: cfg, log: cfg.Logger, metrics: newMetrics(cfg.Metrics), memory: budget{size: cfg.Budget},
		ports: map[uint16]*port{}, opened: make(chan struct{}, 1), began: time.Now(),
		strange: rate.NewLimiter(rate.Every(logEvery), logBurst),
		stopped: make(chan error, 1),
	}
	r.outbox.init()
	registerBudget(cfg.Metrics, &r.memory)
	var source, publishing context.Context
	source, r.stopSource = context.WithCancel(context.Background())
	publishing, r.end = context.WithCancel(context.Background())
	go func() { r.stopped <- cfg.Source.Run(source, r) }()
	r.ended.Go(func() { r.closeAged(publishing) })
	r.ended.Go(func() { r.publish(publishing) })
	return r
}

// Listen makes ports the set of ports that are received. It returns an error for each port that could not be opened.
func (r *Receiver) Listen(ports []uint16) map[uint16]error { return r.cfg.Source.Listen(ports) }

// Flow is where datagrams come from: a channel of an instrument.
type Flow struct{ Instrument, Channel string }

// Received returns how many datagrams were read since the start, for each channel that had any, including those that
// were dropped for want of space.
func (r *Receiver) Received() map[Flow]uint64 {
	r.mu.RLock()
	ports := slices.Collect(maps.Values(r.ports))
	r.mu.RUnlock()
	all := map[Flow]uint64{}
	for _, p := range ports {
		p.mu.Lock()
		for key, f := range p.flows {
			if key.dropped == "" {
				all[Flow{key.instrument, key.channel}] += f.count
			}
		}
		p.mu.Unlock()
	}
	return all
}

// Traffic is how many datagrams, and bytes of their payloads, were read since the start.
func (r *Receiver) Traffic() (packets, bytes uint64) { return r.packets.Load(), r.bytes.Load() }

// Fill is how full the memory for telemetry messages is, 0 to 1, and how full the kernel's fullest buffer.
func (r *Receiver) Fill() (memory, queue float64) {
	if source, tells := r.cfg.Source.(interface{ Fill() float64 }); tells {
		queue = source.Fill()
	}
	return load.Fill(r.memory.used.Load(), r.memory.size), queue
}

// Drain takes no more, and publishes what was received. It returns an error where ctx ended before JetStream had all of
// it: what was not handed over yet is then dropped and counted, and what was is settled when the announcer's committer
// is closed.
func (r *Receiver) Drain(ctx context.Context) error {
	r.stopSource()
	var err error
	select {
	case err = <-r.stopped:
	case <-ctx.Done(): // what the source still hands over is dropped and counted
		err = fmt.Errorf("drain telemetry: the ports are not closed yet: %w", ctx.Err())
	}
	r.closeOpen()
	if !r.outbox.await(ctx) {
		err = errors.Join(err, fmt.Errorf("drain telemetry: %w", ctx.Err()))
	}
	r.end()
	r.ended.Wait()
	r.dropLeft()
	return err
}
