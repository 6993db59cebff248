// SPDX-License-Identifier: Apache-2.0

// Package descriptions archives what instruments say of their data, and from when on: each time
// that it changes, into the bucket, for decades, and then into a key-value bucket, for its
// followers. Nothing else of the archive waits for it.
package descriptions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/metric"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// DefaultInterval is how often the registry is looked at.
	DefaultInterval = 10 * time.Second
	// DefaultSettle is between two descriptions of one instrument: of those that change
	// faster, only what they come to is archived.
	DefaultSettle = time.Minute
	// lastPause bounds the growing pause after failures.
	lastPause = 5 * time.Minute
)

// Config says whose instruments these are. Durations that are not set have the defaults.
type Config struct {
	holder.Base

	// Declared returns the entries of all instruments of the registry, and false
	// before there is one.
	Declared func() ([]wire.InstrumentEntry, bool)

	Interval, Settle time.Duration

	Metrics *Metrics
}

// Metrics outlive the archivers of one process.
type Metrics struct {
	written, restored, failures prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	return &Metrics{
		written:  metric.Counter(registry, "substorm_descriptions_written_total", "Descriptions of instruments that this archivist archived."),
		restored: metric.Counter(registry, "substorm_descriptions_restored_total", "Descriptions that this archivist brought from the bucket back into the key-value bucket."),
		failures: metric.Counter(registry, "substorm_descriptions_failures_total", "How often a description could not be archived, read or brought back."),
	}
}

// Archiver works while one lease lasts.
type Archiver struct {
	cfg Config
	kv  jetstream.KeyValue
	// epoch is the epoch of the key-value bucket that was taken up.
	epoch string
	// known is what is archived, by instrument; nil: it is to be taken up.
	known map[string]*told
}

// told is the newest description of an instrument.
type told struct {
	says wire.Digest
	uid  string
	from time.Time
	// generations are the newest of each Instrument that had the name, by uid.
	generations map[string]int64
	// oldSince is when the registry began to hold what is older than that.
	oldSince time.Time
}

// outdated says whether an entry is of an old registry, which a restarted gateway reads from its
// disk: the present one follows soon. An old entry that stays is the current one: the cluster was
// restored from a backup.
func (t *told) outdated(e *wire.InstrumentEntry, now time.Time, patience time.Duration) bool {
	generation, seen := t.generations[e.UID]
	switch {
	case !seen || e.Generation >= generation && e.UID == t.uid:
		t.oldSince = time.Time{}
		return false
	case t.oldSince.IsZero() || now.Before(t.oldSince):
		t.oldSince = now
	}
	return now.Sub(t.oldSince) < patience
}

// New returns an archiver; Run runs it.
func New(cfg Config) *Archiver {
	if cfg.Interval <= 0 {
		cfg.Interval = DefaultInterval
	}
	if cfg.Settle <= 0 {
		cfg.Settle = DefaultSettle
	}
	return &Archiver{cfg: cfg}
}

// Run archives descriptions until ctx ends. Failures are logged, counted and
// retried. Errors: only ctx's and the lease's.
func (r *Archiver) Run(ctx context.Context) error {
	pause, said := r.cfg.Interval, ""
	for {
		err := r.pass(ctx, time.Now().UTC())
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, stream.ErrLeaseLost):
			return err
		case err != nil:
			r.known = nil // what arrived of it is seen then
			pause = min(2*pause, max(lastPause, r.cfg.Interval))
			if err.Error() != said {
				said = err.Error()
				r.cfg.Log.Warn("cannot archive the descriptions of instruments now", "error", err)
			}
		default:
			pause, said = r.cfg.Interval, ""
		}
		if !retry.Sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// pass looks at all instruments. If some of them fail, it returns the first error.
func (r *Archiver) pass(ctx context.Context, now time.Time) error {
	declared, known := r.cfg.Declared()
	if !known {
		return nil
	}
	if err := r.takeUp(ctx); err != nil {
		r.known = nil
		if !errors.Is(err, stream.ErrLeaseLost) {
			r.cfg.Metrics.failures.Inc()
		}
		return err
	}
	var first error
	for i := range declared {
		err := r.describe(ctx, &declared[i], now)
		if err == nil {
			continue
		}
		if ctx.Err() != nil || errors.Is(err, stream.ErrLeaseLost) {
			return err
		}
		r.cfg.Metrics.failures.Inc()
		if first == nil {
			first = fmt.Errorf("instrument %s: %w", declared[i].Instrument, err)
		}
	}
	return first
}

// describe archives what an instrument says, if that is new.
func (r *Archiver) describe(ctx context.Context, e *wire.InstrumentEntry, now time.Time) error {
	from, known := now, r.known[e.Instrument]
	if known != nil {
		if known.outdated(e, now, r.cfg.Settle) {
			return nil
		}
		if earliest := known.from.Add(time.Millisecond); from.Before(earliest) { // another gateway's clock
			from = earliest
		}
	}
	d := wire.DescriptionOf(r.cfg.Site, *e, from)
	says, err := d.Says()
	if err != nil {
		return err
	}
	if known != nil {
		if known.says == says {
			return nil
		}
		if since := now.Sub(known.from); since >= 0 && since < r.cfg.Settle {
			return nil // a later pass comes back to it
		}
	}
	if err := r.write(ctx, d); err != nil {
		return err
	}
	r.learn(&d, says)
	r.cfg.Metrics.written.Inc()
	r.cfg.Log.Info("archived the description of an instrument", "instrument", d.Instrument, "generation", d.Generation, "from", d.From)
	return nil
}

// write stores a description: the object, then the entry. If only the object arrives, takeUp makes up for the entry.
func (r *Archiver) write(ctx context.Context, d wire.Description) error {
	data, err := wire.Encode(d)
	if err != nil {
		return err
	}
	if err := r.cfg.Lease.Check(); err != nil {
		return err
	}
	err = r.cfg.Store.Put(ctx, d.Key(), bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{ContentType: "application/json", CreateOnly: true})
	if err != nil {
		return err
	}
	return r.putEntry(ctx, d.EntryKey(), data)
}

// putEntry writes an entry: the bytes of an object that never changes, so that writing it again changes
// nothing.
func (r *Archiver) putEntry(ctx context.Context, key string, data []byte) error {
	if err := r.cfg.Lease.Check(); err != nil {
		return err
	}
	if _, err := r.kv.Put(ctx, key, data); err != nil {
		return fmt.Errorf("write %s of %s: %w", key, r.kv.Bucket(), err)
	}
	return nil
}

// learn notes what is archived.
func (r *Archiver) learn(d *wire.Description, says wire.Digest) {
	t := r.known[d.Instrument]
	if t == nil {
		t = &told{generations: map[string]int64{}}
		r.known[d.Instrument] = t
	}
	t.generations[d.UID] = max(t.generations[d.UID], d.Generation)
	if !d.From.Before(t.from) {
		t.says, t.uid, t.from = says, d.UID, d.From
	}
}
