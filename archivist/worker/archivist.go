// SPDX-License-Identifier: Apache-2.0

// Package worker is what the archivist that works does: it holds the lease and writes manifests and
// their index, cuts segments, sweeps the bucket, trims the streams and forwards copies. When it
// dies another continues where it stopped.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/archivist/retention"
	"github.com/substorm/substorm/archivist/segment"
	"github.com/substorm/substorm/internal/diskbudget"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// Limits of an instrument that the registry does not know (any more). Its objects are remembered
// for the window, so that later ones can be recognized as duplicates once it is known.
const (
	DefaultSegmentAge   = 10 * time.Minute
	DefaultSegmentSize  = 64 << 20
	DefaultRepeatWindow = 30 * 24 * time.Hour
)

const (
	defaultPartInterval  = time.Minute
	defaultSweepInterval = 10 * time.Minute
	defaultSweepAge      = 10 * time.Minute
	defaultRetention     = 72 * time.Hour
	defaultTrimInterval  = time.Minute
	defaultMemory        = 32 << 20

	releaseTimeout = 3 * time.Second
	// registryWait is how long an archivist waits for the Site's registry before it asks for the
	// lease: retractions are refused while legal hold is unknown.
	registryWait, registryLook = 10 * time.Second, 50 * time.Millisecond
	// After a failure others get the chance first, for a pause that grows.
	firstPause = time.Second
	lastPause  = 30 * time.Second
	// olderPause is how long an archivist keeps out of the way that met records
	// of a newer Substorm: a newer one, if there is one, holds the lease by then.
	olderPause = time.Minute
)

// Config says which archivist this is and what it works on. Durations and sizes that are not set
// have the defaults that the design names.
type Config struct {
	Site, Pod, Incarnation string

	JetStream jetstream.JetStream
	Store     objectstore.Store
	// Settings returns an instrument's entry of the registry, and false for one
	// that the registry does not know.
	Settings func(instrument string) (wire.InstrumentEntry, bool)

	// Unread says whether the registry's entry of an instrument cannot be read, so that Settings
	// and Declared go by an older one: it is unknown whether the instrument is under legal hold,
	// and it counts as held. Optional: all can be read.
	Unread func(instrument string) bool

	// Declared returns the entries of all instruments of the registry, and false
	// before there is one. Without it nothing is forwarded, no gap found, and no
	// description archived.
	Declared func() ([]wire.InstrumentEntry, bool)

	// Partners returns the partners of mirrors that are declared, as retention.Config says.
	// Optional: then every partner in the ledger counts.
	Partners func() (map[string]retention.Partner, bool)

	// Live says whether both speak of the registry as it is now, and not only of that
	// which this archivist saw last: before that nothing is retracted, nothing expires, and
	// nothing is marked as a duplicate.
	// Optional: they always do.
	Live func() bool

	// PartInterval is how often manifest parts are closed (a minute).
	PartInterval time.Duration
	// SweepInterval is how often the bucket is swept, and SweepAge how old a
	// stored object is that must be listed (ten minutes each).
	SweepInterval, SweepAge time.Duration
	// ObservationRetention and NoticeRetention are how long archived messages
	// stay in the streams (72 hours), and TrimInterval how often they are
	// trimmed (a minute).
	ObservationRetention, NoticeRetention, TrimInterval time.Duration
	// RemoveInterval is how often the archivist looks for bytes to be removed, ExpireInterval how
	// often it looks for days that are not kept any longer, and RemoveGrace how long objects that
	// share a pack with them may be read at their old places: see keeping.Config for the defaults.
	RemoveInterval, ExpireInterval, RemoveGrace time.Duration
	// Compaction of closed days: see compact.Config for the defaults.
	CompactInterval, CompactAfter, CompactGrace time.Duration
	PackSize                                    int64
	// ScrubRate is how many bytes a second of the archive are compared with their
	// digests, and ScrubInterval the least time for all of it; negative: nothing is
	// compared. See scrub.Config for the defaults.
	ScrubRate     int64
	ScrubInterval time.Duration
	// Closing of days of the ledger: see closing.Config for the defaults.
	CloseInterval, CloseAfter time.Duration
	// GapsInterval is how often gaps are looked for (five minutes).
	GapsInterval time.Duration
	// DescribeInterval is how often the registry is looked at for what instruments say
	// of their data, and for entries of guests (ten seconds).
	DescribeInterval time.Duration
	// Memory bounds what is remembered of the objects of the archive, in bytes (32 MiB).
	Memory int64
	// Budget of the disk; nil if this process has none.
	Budget *diskbudget.Budget
	// ForwardNetworks are those to which copies for old servers may go beside public
	// addresses.
	ForwardNetworks []netip.Prefix
	// ScratchDir holds the segment that is being cut, and the pack and the manifest
	// that are compacted; it is emptied of segments when Run begins.
	ScratchDir string

	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Run competes for the Site's lease, works while it holds it, and competes again,
// until ctx ends; it returns nil then. Errors: only those of the configuration.
// Everything else is logged, counted and tried again.
func Run(ctx context.Context, cfg Config) error {
	a, err := newArchivist(cfg)
	if err != nil {
		return err
	}
	for pause := firstPause; ; {
		began := time.Now()
		err := a.holdOnce(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > lastPause {
			pause = firstPause
		}
		wait := pause
		if errors.Is(err, wire.ErrNewerFormat) {
			wait = olderPause
		}
		a.metrics.failures.Inc()
		a.cfg.Log.Error("the archivist gave up the lease; retrying", "wait", wait, "error", err)
		if !retry.Sleep(ctx, wait) {
			return nil
		}
		pause = min(2*pause, lastPause)
	}
}

type archivist struct {
	cfg     Config
	metrics *metrics
}

func newArchivist(cfg Config) (*archivist, error) {
	setDefaults(&cfg)
	if err := os.MkdirAll(cfg.ScratchDir, 0o750); err != nil {
		return nil, fmt.Errorf("scratch folder of the archivist: %w", err)
	}
	leftovers, err := filepath.Glob(filepath.Join(cfg.ScratchDir, segment.ScratchPattern))
	if err != nil {
		return nil, fmt.Errorf("scratch folder of the archivist: %w", err)
	}
	for _, file := range leftovers {
		if err := os.Remove(file); err != nil {
			return nil, fmt.Errorf("scratch folder of the archivist: %w", err)
		}
	}
	return &archivist{cfg: cfg, metrics: newMetrics(cfg.Metrics)}, nil
}

func setDefaults(cfg *Config) {
	for _, d := range []struct {
		value *time.Duration
		or    time.Duration
	}{
		{&cfg.PartInterval, defaultPartInterval},
		{&cfg.SweepInterval, defaultSweepInterval},
		{&cfg.SweepAge, defaultSweepAge},
		{&cfg.ObservationRetention, defaultRetention},
		{&cfg.NoticeRetention, defaultRetention},
		{&cfg.TrimInterval, defaultTrimInterval},
	} {
		if *d.value <= 0 {
			*d.value = d.or
		}
	}
	if cfg.Memory <= 0 {
		cfg.Memory = defaultMemory
	}
	if cfg.ScratchDir == "" {
		cfg.ScratchDir = os.TempDir()
	}
}

// holdOnce waits for the lease and works under it until something ends that.
func (a *archivist) holdOnce(ctx context.Context) error {
	bucket, err := a.cfg.JetStream.KeyValue(ctx, wire.LeaseBucket(a.cfg.Site))
	if err != nil {
		return fmt.Errorf("bucket %s: %w", wire.LeaseBucket(a.cfg.Site), err)
	}
	a.awaitRegistry(ctx)
	lease, err := stream.AcquireLease(ctx, bucket, wire.ArchivistLease,
		wire.Lease{Holder: a.cfg.Pod, Incarnation: a.cfg.Incarnation}, a.cfg.Log)
	if err != nil {
		return err
	}
	a.cfg.Log.Info("this archivist took the lease")
	a.metrics.held.Set(1)
	defer func() {
		a.metrics.held.Set(0)
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		if err := lease.Release(release); err != nil {
			a.cfg.Log.Warn("the lease was not given back and expires by itself", "error", err)
		}
	}()
	return a.work(ctx, lease)
}

// work runs everything that only the lease's holder may do.
func (a *archivist) work(ctx context.Context, lease *stream.Lease) error {
	closer := a.closer(lease)
	deleter := a.deleter(lease, closer)
	keeper := a.index(lease, deleter)
	writer, cutter := a.writer(lease, deleter, keeper), a.cutter(lease)
	compactor := a.compactor(lease, deleter, keeper)
	runners := []runner{keeper, a.names(lease), writer, a.sweeper(lease, deleter, writer), cutter, compactor, closer, a.collector(lease, deleter, writer, compactor, closer), a.guests(lease)}
	if a.cfg.Declared != nil {
		runners = append(runners, a.forwarder(lease), a.gaps(lease, keeper), a.descriptions(lease))
	}
	if a.cfg.ScrubRate >= 0 {
		runners = append(runners, a.scrub(lease))
	}
	notices := a.trimmer(lease, wire.NoticeStream(a.cfg.Site), a.cfg.NoticeRetention, writer.Listed, wire.NoticeStreamSubjects(a.cfg.Site)...)
	notices.from = map[string]func() uint64{wire.RequestSubjects(a.cfg.Site): writer.Answered}
	runners = append(runners, notices,
		a.trimmer(lease, wire.ObservationStream(a.cfg.Site), a.cfg.ObservationRetention, cutter.Archived, wire.ObservationSubjects(a.cfg.Site)))
	group, ctx := errgroup.WithContext(ctx)
	for _, r := range runners {
		group.Go(func() error { return r.Run(ctx) })
	}
	group.Go(func() error {
		select {
		case <-lease.Lost():
			return stream.ErrLeaseLost
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return group.Wait()
}

// packBelow: of what the registry does not know (any more), only members move.
func (a *archivist) packBelow(instrument string) int64 {
	e, _ := a.cfg.Settings(instrument)
	return e.PackBelow
}

func (a *archivist) repeatWindow(instrument string) time.Duration {
	if e, ok := a.cfg.Settings(instrument); ok {
		return e.RepeatWindow()
	}
	return DefaultRepeatWindow
}

func (a *archivist) naming(instrument string) (template, station string) {
	e, _ := a.cfg.Settings(instrument)
	return e.Naming, e.Station
}

func (a *archivist) channels(instrument string) []wire.ChannelEntry {
	e, _ := a.cfg.Settings(instrument)
	return e.Channels
}

func (a *archivist) lateAfter(instrument string) time.Duration {
	e, _ := a.cfg.Settings(instrument)
	return e.LateAfter()
}

func (a *archivist) segmentLimits(instrument string) (time.Duration, int64) {
	age, size := DefaultSegmentAge, int64(DefaultSegmentSize)
	if e, ok := a.cfg.Settings(instrument); ok {
		if e.SegmentAgeMillis > 0 {
			age = time.Duration(e.SegmentAgeMillis) * time.Millisecond
		}
		if e.SegmentSize > 0 {
			size = e.SegmentSize
		}
	}
	return age, size
}
