// SPDX-License-Identifier: Apache-2.0

// Package quarantine keeps what unknown senders send: apart from the archive,
// unpublished, and bounded. The oldest stays; what comes beyond the bound is
// refused and counted. `substorm adopt` looks at it and gives it to an Instrument.
package quarantine

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/highwater"
	"github.com/substorm/substorm/internal/metric"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// lookInterval is how often the quarantine is looked at: what is too old is
	// removed, and what was adopted gives space.
	lookInterval = 30 * time.Second
	// storeTimeout bounds one write: unknown senders are not waited for.
	storeTimeout = 30 * time.Second
	// sniff is how much of an object is looked at to guess what it is, in bytes.
	sniff = 512
)

// Config says where the quarantine is and how large it may be.
type Config struct {
	Site, Gateway string
	Objects       objectstore.Store
	// Dir on the volume holds objects until their digest is known; it is emptied
	// at the start.
	Dir     string
	MaxSize int64
	MaxAge  time.Duration
	// NoSpace says whether nothing more may be kept on the disk. Optional: then it always may.
	NoSpace func() bool
	// Settled counts datagrams that were gathered, received from at on: as CauseQuarantined if they
	// are in the bucket, else with the cause of their loss.
	Settled func(at time.Time, cause wire.Cause, datagrams int)
	Logger  *slog.Logger
	Metrics prometheus.Registerer
}

// Quarantine is the quarantine of one gateway.
type Quarantine struct {
	cfg     Config
	kept    *prometheus.CounterVec
	strange chan struct{} // slots of objects on their way
	packets packets

	mu sync.Mutex
	// used bytes, on their way included; known once the bucket was looked at.
	used, added int64
	known       bool
}

// maxObjects is how many objects of unknown senders are on their way at a time.
const maxObjects = 32

// Open makes the quarantine; Run keeps it.
func Open(cfg Config) (*Quarantine, error) {
	if err := os.RemoveAll(cfg.Dir); err != nil {
		return nil, fmt.Errorf("quarantine: %w", err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("quarantine: %w", err)
	}
	q := &Quarantine{cfg: cfg, strange: make(chan struct{}, maxObjects),
		kept: metric.Counters(cfg.Metrics, "substorm_gateway_quarantined_total",
			"Objects, and segments of datagrams, of unknown senders that were kept apart, by protocol.", "protocol")}
	q.packets.init()
	metric.GaugeFunc(cfg.Metrics, "substorm_gateway_quarantine_bytes", "Bytes that this pod keeps of unknown senders.",
		func() float64 { q.mu.Lock(); defer q.mu.Unlock(); return float64(q.used) })
	metric.GaugeFunc(cfg.Metrics, "substorm_gateway_quarantine_waiting_segments",
		"Segments of datagrams of unknown senders that the object store did not take, and is asked again to.", q.packets.waiting)
	return q, nil
}

// Run looks after the quarantine until ctx ends, and stores what was gathered. A
// nil Quarantine needs none.
func (q *Quarantine) Run(ctx context.Context) error {
	if q == nil {
		return nil
	}
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	flush := time.NewTicker(flushInterval)
	defer flush.Stop()
	wait := time.Second
	first := time.NewTimer(0)
	defer first.Stop()
	for {
		select {
		case <-ctx.Done():
			q.finish(ctx)
			return nil
		case <-first.C: // until the bucket was looked at, nothing is kept
			if q.countAndPrune(ctx) != nil {
				first.Reset(wait)
			}
		case <-look.C:
			if err := q.countAndPrune(ctx); err != nil && ctx.Err() == nil {
				q.cfg.Logger.Warn("cannot scan the quarantine", "error", err)
			}
		case <-flush.C:
			q.flush(ctx, time.Now().Add(-segmentAge))
		case g := <-q.packets.full:
			_ = q.store(ctx, g) // tried again with the next flush
		}
	}
}

// countAndPrune counts what this gateway keeps, and removes what any gateway has kept for
// too long.
func (q *Quarantine) countAndPrune(ctx context.Context) error {
	q.mu.Lock()
	q.added = 0
	q.mu.Unlock()
	used, before := int64(0), highwater.Limit(time.Now()).Add(-q.cfg.MaxAge)
	for info, err := range q.cfg.Objects.List(ctx, wire.QuarantinePrefix(q.cfg.Site), "") {
		if err != nil {
			return err
		}
		gateway, receivedAt, ok := wire.ParseQuarantineKey(info.Key)
		switch {
		case !ok:
		case receivedAt.Before(before):
			if err := q.cfg.Objects.Delete(ctx, info.Key); err != nil {
				return err
			}
			q.cfg.Logger.Info("removed from the quarantine: too old", "key", info.Key, "bytes", info.Size)
		case gateway == q.cfg.Gateway:
			used += info.Size
		}
	}
	q.mu.Lock()
	q.used, q.known = used+q.added, true
	q.mu.Unlock()
	return nil
}

// reserve takes space for n bytes.
func (q *Quarantine) reserve(n int64) wire.Cause {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case !q.known:
		return wire.CauseStoreUnavailable
	case q.cfg.NoSpace != nil && q.cfg.NoSpace():
		return wire.CauseNoSpace
	case q.used+n > q.cfg.MaxSize:
		return wire.CauseQuarantineFull
	}
	q.used += n
	q.added += n
	return ""
}

func (q *Quarantine) release(n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used -= n
	q.added -= n
}

// scratch makes a file that no other process sees.
func (q *Quarantine) scratch() (*os.File, error) {
	f, err := os.CreateTemp(q.cfg.Dir, "object-*")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(filepath.Join(q.cfg.Dir, filepath.Base(f.Name())))
}
