// SPDX-License-Identifier: Apache-2.0

// Package index keeps the list of days that readers of the archive go by: the entries of the
// key-value bucket INDEX_<site>, and the roots beside the manifests. Readers of the archive list
// the bucket only if a file that the index names is missing.
//
// The manifest's writer and the compactor say what they stored, and the keeper tells the readers
// before the writer moves its cursor. Nothing here may hold up the archive: failures are logged and
// counted, the keeper gives the index up, and takes it up again by comparing it with the bucket.
// Until then readers miss new files, and know it: the place under wire.IndexListedKey does not
// advance.
package index

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/archivist/deletion"
	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// DefaultRootInterval is how often an instrument gets a new root at most.
	DefaultRootInterval = time.Minute
	// DefaultCompareInterval is how often the days that may still change are compared with the
	// bucket: nothing else shows that their files were lost, or come from a copy of the bucket.
	DefaultCompareInterval = time.Hour
	// maxOpen days, or dueEntry bytes of an entry, make a new root due. Today and
	// yesterday change; what comes late touches others. A message of JetStream may
	// have 1 MB: with maxEntry bytes a root does not wait for its interval.
	maxOpen  = 4
	dueEntry = 256 << 10
	maxEntry = 640 << 10
	// keepDays of an instrument are held in memory.
	keepDays = 10
	// putsAtOnce bounds the entries that are on their way to JetStream at one time.
	putsAtOnce = 8
	// retryPause is between tries to take the index up.
	retryPause = 5 * time.Second
	// callTimeout bounds what is asked of JetStream at a time.
	callTimeout = 10 * time.Second
)

// Config says whose archive it is.
type Config struct {
	holder.Base

	// Deleter deletes old roots.
	Deleter *deletion.Deleter
	// RootInterval and CompareInterval are as their defaults say.
	RootInterval, CompareInterval time.Duration

	Metrics *Metrics
}

// Keeper works while one lease lasts. A nil keeper keeps nothing.
type Keeper struct {
	cfg Config
	// wake says that the index was given up.
	wake chan struct{}

	mu sync.Mutex
	// kv is nil while there is no index to keep.
	kv jetstream.KeyValue
	// complete: the entries know all that is in closed parts. Until then touched are the days that must be looked
	// at once more; if stale is set, all must.
	complete    bool
	touched     map[dayKey]bool
	stale       bool
	listed      *stream.Cell
	listedAt    wire.StreamCursor
	instruments map[string]*instrumentIndex
	// missing are days that the index knows and that have no manifest in the bucket; lost are those
	// that lack files there, for components that list objects.
	missing map[dayKey]bool
	lost    []LostDay
}

// ErrIncomplete: the index is not kept now. It learns of the day when it is again.
var ErrIncomplete = errors.New("the index is not complete")

type dayKey struct {
	instrument string
	day        wire.Day
}

// New returns a keeper; Run runs it.
func New(cfg Config) *Keeper {
	if cfg.RootInterval <= 0 {
		cfg.RootInterval = DefaultRootInterval
	}
	if cfg.CompareInterval <= 0 {
		cfg.CompareInterval = DefaultCompareInterval
	}
	return &Keeper{cfg: cfg, wake: make(chan struct{}, 1), touched: map[dayKey]bool{}, missing: map[dayKey]bool{}}
}

// Run takes the index up, as often as needed, until ctx ends. Errors: only ctx's.
func (k *Keeper) Run(ctx context.Context) error {
	defer k.cfg.Metrics.complete.Set(0)
	said := ""
	for {
		var again <-chan time.Time
		err := k.takeUp(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			if err.Error() != said {
				said = err.Error()
				k.cfg.Log.Warn("cannot update the index now: readers do not see new objects", "error", err)
			}
			k.giveUp()
			again = time.After(retryPause)
		default:
			said = ""
			k.follow(ctx)
			again = time.After(retryPause)
		}
		select {
		case <-again:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Complete says whether readers know all that is in closed parts.
func (k *Keeper) Complete() bool {
	if k == nil {
		return true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.complete
}

// giveUp forgets the index. The mutex is free.
func (k *Keeper) giveUp() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forget()
}

// forget drops the index, and touches the days that were not yet reported to the readers. The mutex
// is held.
func (k *Keeper) forget() {
	for _, i := range k.instruments {
		for _, d := range i.entry.Open {
			if i.changed {
				k.touched[dayKey{i.name, d.Day}] = true
			}
		}
	}
	k.kv, k.complete, k.instruments, k.listed = nil, false, nil, nil
	k.cfg.Metrics.complete.Set(0)
}

// fail gives the index up. The mutex is held.
func (k *Keeper) fail(err error) {
	if !errors.Is(err, context.Canceled) {
		k.cfg.Metrics.failures.Inc()
		k.cfg.Log.Warn("pausing the index after an error; loading it again", "error", err)
	}
	if errors.Is(err, objectstore.ErrNotFound) || errors.Is(err, wire.ErrMalformed) {
		k.stale = true
	}
	k.forget()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Part says that a part of so many bytes was stored.
func (k *Keeper) Part(ctx context.Context, instrument string, day wire.Day, number int, size int64, records []wire.Record) {
	_ = k.changeInstrument(ctx, instrument, day, func(i *instrumentIndex) error { // it is touched, and looked at later
		known, found := i.recent(day)
		var err error
		if !found && number > 1 { // a first part is of no day that a root has
			known, err = k.known(ctx, i, day)
		}
		switch {
		case err != nil:
			return err
		case known.Parts.Has(number): // it was seen in the bucket, or the one that is known is lost and this is another
			return k.summarize(ctx, i, day)
		case number > 1 && known.Same(wire.RootDay{Day: day}):
			return k.summarize(ctx, i, day)
		}
		sum := manifest.NewSummary(known)
		for _, r := range records {
			sum.Add(r)
		}
		sum.Part(number, wire.ManifestPartKey(k.cfg.Site, instrument, day, number), size)
		i.set(sum.Day())
		return nil
	})
}

// Seen says which files of a day the bucket was seen to hold. If the index knows others, the day is compared.
func (k *Keeper) Seen(ctx context.Context, instrument string, day wire.Day, files manifest.Files) {
	if len(files.InEffect) == 0 {
		return
	}
	_ = k.changeInstrument(ctx, instrument, day, func(i *instrumentIndex) error { // it is touched, and looked at later
		known, err := k.known(ctx, i, day)
		if err != nil || known.Same(files.Known(day)) {
			return err
		}
		return k.compare(ctx, i, known)
	})
}

// Tell makes sure that readers know the files of a day, which the bucket was seen to hold. Late
// says that they learn of them only now: the process that stored them died before it said so.
// Errors: as Compacted.
func (k *Keeper) Tell(ctx context.Context, instrument string, day wire.Day, files manifest.Files) (late bool, err error) {
	if len(files.InEffect) == 0 {
		return false, nil
	}
	err = k.changeInstrument(ctx, instrument, day, func(i *instrumentIndex) error {
		known, err := k.known(ctx, i, day)
		if err == nil && !known.Same(files.Known(day)) {
			err = k.compare(ctx, i, known)
		}
		if err != nil {
			return err
		}
		if late = i.changed; !late {
			return nil
		}
		return k.store(ctx, i)
	})
	return late, err
}

// Compacted notes that a version of a day was stored, and notifies the readers at once. Errors:
// ErrIncomplete, and those of JetStream and the store; the day is compared again when the index is
// taken up.
func (k *Keeper) Compacted(ctx context.Context, instrument string, day wire.Day) error {
	return k.changeInstrument(ctx, instrument, day, func(i *instrumentIndex) error {
		if err := k.summarize(ctx, i, day); err != nil {
			return err
		}
		i.closed = true
		return k.store(ctx, i)
	})
}

// Flush publishes the changes to the readers, and then that the index has everything before a place
// of the notice stream.
func (k *Keeper) Flush(ctx context.Context, at wire.StreamCursor) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.complete {
		return
	}
	if err := k.flush(ctx, at); err != nil {
		k.fail(err)
	}
}

// changeInstrument changes what is known of an instrument, or notes that its day must be read.
func (k *Keeper) changeInstrument(ctx context.Context, name string, day wire.Day, change func(*instrumentIndex) error) error {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.complete {
		k.touched[dayKey{name, day}] = true
		return ErrIncomplete
	}
	i, err := k.instrument(ctx, name)
	if err == nil {
		err = change(i)
	}
	if err != nil {
		k.touched[dayKey{name, day}] = true
		err = fmt.Errorf("instrument %s, %s: %w", name, day, err)
		k.fail(err)
		return fmt.Errorf("%w: %w", ErrIncomplete, err)
	}
	return nil
}
