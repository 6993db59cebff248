// SPDX-License-Identifier: Apache-2.0

// Package store puts what an instrument sent into the object store and has it
// announced. Only then is an object safe as "acknowledge: Stored" says, and may
// be receipted.
//
// The order, in which a kill at any point loses nothing that was receipted: bytes and
// metadata in the store, then the notice in the stream, then the ledger, then the
// receipt. The archivist's sweep finds objects that are stored and were never announced.
package store

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"github.com/substorm/substorm/ingest-gateway/intake/memory"
	"github.com/substorm/substorm/ingest-gateway/ledger"
	"github.com/substorm/substorm/ingest-gateway/names"
	"github.com/substorm/substorm/ingest-gateway/spool"
	"github.com/substorm/substorm/internal/diskbudget"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// PartSize is the size of an object, in bytes, up to which it goes to the store
// in one request; a larger one goes in parts of this size.
const PartSize = 16 << 20

// MaxObjectSize is what fits into the parts of one upload.
const MaxObjectSize = PartSize * objectstore.MaxParts

// Defaults of Config.
const (
	// DefaultConcurrency is how many requests the store gets at a time: beyond
	// the number of its drives and cores more requests only wait there.
	DefaultConcurrency = 32
	// DefaultPatience outlasts the restart of a store or of NATS.
	DefaultPatience = 30 * time.Second
	// DefaultShortWait is what a busy store may take for an object.
	DefaultShortWait = 2 * time.Second
	// maxListings is how many manifests are read at a time.
	maxListings = 2
)

// Announcer publishes notices, see announce.Announcer.
type Announcer interface {
	Notice(ctx context.Context, n wire.Notice, settled func(error)) error
}

// Config says where objects go.
type Config struct {
	Site, Gateway, Incarnation string

	Objects   objectstore.Store
	Announcer Announcer
	Ledger    *ledger.Ledger
	Pool      *memory.Pool
	// Packs is memory for packs alone, used while Pool is exhausted; it may be nil.
	Packs   *memory.Pool
	Logger  *slog.Logger
	Metrics prometheus.Registerer

	// Concurrency bounds the requests to the store at a time.
	Concurrency int64
	// Patience is how long the store, or JetStream, may do nothing before the
	// objects that wait for it are given up.
	Patience time.Duration

	// Spool keeps what is receipted and not yet archived; without one receipts
	// always mean Stored.
	Spool *spool.Spool
	// Copier has copies kept for Replicated; without one that acts as Stored.
	Copier Copier
	// Names claims names of objects; without it objects may have none.
	Names *names.Names
	// Budget of the disk, if this process has one: when it is used up nothing is receipted.
	Budget *diskbudget.Budget
	// ShortWait is how long store and JetStream may take, one after the other,
	// before an object goes to the spool instead (StoredOrSpooled).
	ShortWait time.Duration
	// JetStream has the reports of damage, and takes notices of copies. It is needed with a spool.
	JetStream jetstream.JetStream
}

// Archive takes objects for one incarnation of a gateway.
type Archive struct {
	cfg     Config
	clock   clock
	slots   *semaphore.Weighted
	health  health
	probing singleflight.Group
	metrics metrics
	packers packers
	// streamAway: the last that was heard of JetStream is that it does not answer.
	streamAway atomic.Bool
	// inFlight are notices that were published and went to the spool before it was known what
	// became of them: channels that receive the outcome, by ID.
	inFlight sync.Map
	// storing has a place for each object from the spool that may be on its way to the store.
	storing chan struct{}
	// listings has a place for each manifest that may be read at a time.
	listings chan struct{}
	// mirroring has a channel for each object of a guest on its way to the store, by key: it is closed when that is over.
	mirroring sync.Map
	listedIDs listedIDs
	// status is the bucket that says what is damaged, once it was asked for.
	status atomic.Pointer[jetstream.KeyValue]

	// cleaning counts the work that continues after an object is done.
	cleaning sync.WaitGroup
}

// New returns an Archive.
func New(cfg Config) *Archive {
	if cfg.Concurrency <= 0 {
		cfg.Concurrency = DefaultConcurrency
	}
	if cfg.Patience <= 0 {
		cfg.Patience = DefaultPatience
	}
	if cfg.ShortWait <= 0 {
		cfg.ShortWait = DefaultShortWait
	}
	a := &Archive{
		cfg: cfg, slots: semaphore.NewWeighted(cfg.Concurrency), metrics: newMetrics(cfg.Metrics), listings: make(chan struct{}, maxListings),
		storing: make(chan struct{}, drainAlone),
	}
	a.listedIDs.archive = a
	a.openPackers()
	if cfg.Spool != nil {
		registerSpool(cfg.Metrics, cfg.Spool)
	}
	return a
}

// KeepTime continues receive times from where the last incarnation on this volume ended, and stores
// where this one does. Errors: the file system's.
func (a *Archive) KeepTime(file string) error { return a.clock.open(file, time.Now(), a.cfg.Logger) }

// Wait returns once what was left to clean up (uploads given up, staging
// objects) is cleaned up, or ctx ends.
func (a *Archive) Wait(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		a.cleaning.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Failure says why an object was given up.
type Failure struct {
	Cause wire.Cause
	Err   error
}

// Error implements error.
func (f *Failure) Error() string { return string(f.Cause) + ": " + f.Err.Error() }

// Unwrap returns what went wrong.
func (f *Failure) Unwrap() error { return f.Err }

// CauseOf returns the cause under which an object is counted that an error of
// Space or Commit ended.
func CauseOf(err error) wire.Cause {
	var f *Failure
	switch {
	case errors.As(err, &f):
		return f.Cause
	case errors.Is(err, names.ErrConflict):
		return wire.CauseNameConflict
	case errors.Is(err, stream.ErrUnavailable), errors.Is(err, stream.ErrFull), errors.Is(err, stream.ErrRefused), errors.Is(err, stream.ErrClosed):
		return stream.CauseOf(err)
	case errors.Is(err, memory.ErrFull), errors.Is(err, errSpool), errors.Is(err, diskbudget.ErrUsedUp):
		return wire.CauseNoSpace
	default:
		return wire.CauseStoreUnavailable
	}
}

// MayKeep returns diskbudget.ErrUsedUp where nothing more may be kept on the disk.
func (a *Archive) MayKeep() error {
	if a.cfg.Budget.NoReceipts() {
		return diskbudget.ErrUsedUp
	}
	return nil
}

// Refused counts an object that was refused before any byte was read.
func (a *Archive) Refused(instrument string, cause wire.Cause) {
	now := time.Now()
	a.cfg.Ledger.ObjectBegun(instrument, now)
	a.cfg.Ledger.Unfinished(instrument, now, cause, 0)
}
