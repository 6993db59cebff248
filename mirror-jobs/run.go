// SPDX-License-Identifier: Apache-2.0

// Package mirrorjobs is the program that makes the runs of MirrorPartners: it moves what a
// partner is owed, as the registry of the Site says, and reports how far it is.
package mirrorjobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/telemetry"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/bound"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/push"
)

const (
	// patience is how long a run waits for the Site's registry and index.
	patience = time.Minute
	// lookEvery is how often a continuous run looks whether something was announced.
	lookEvery = 2 * time.Second
	// firstBackOff and lastBackOff are the pauses of a continuous run whose partner does not take
	// anything.
	firstBackOff = 5 * time.Second
	lastBackOff  = 10 * time.Minute
)

// askAgain are the pauses after which a run that does not follow asks a partner again that did not answer: for a moment after its pods
// have become ready, a Service still refuses connections.
var askAgain = []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}

// errDone ends what runs beside a run.
var errDone = errors.New("the run has ended")

// program is one run, or one that follows.
type program struct {
	cfg     Config
	log     *slog.Logger
	metrics *prometheus.Registry
	nc      *nats.Conn
	js      jetstream.JetStream
	// store and catalog are nil where the run needs no archive.
	store    objectstore.Store
	registry *registry.Registry
	catalog  *catalog.Catalog
	report   *report
	refused  *prometheus.CounterVec
}

// errNoStore: it was begun for another mirror than the registry has now.
var errNoStore = errors.New("this run was begun without --s3-endpoint and --s3-bucket, and the MirrorPartner needs the archive: the next one has them")

// Run makes a run. Errors say why something is still owed, and are reported too.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.check(); err != nil {
		return err
	}
	log, err := telemetry.NewLogger(cfg.Log, cfg.LogLevel)
	if err != nil {
		return err
	}
	p := &program{cfg: cfg, metrics: telemetry.NewRegistry("mirror-jobs"), registry: registry.New()}
	p.refused = promauto.With(p.metrics).NewCounterVec(prometheus.CounterOpts{
		Name: "substorm_mirror_refused_lists_total",
		Help: "Runs that refused a list of the other side since it exceeds a limit, by list: " +
			"page, folder, folders, depth, rsync-list, rsync-answer, root, days, lists.",
	}, []string{"list"})
	p.log = log.With("partner", cfg.Partner, "run", cfg.Run)
	if cfg.readsArchive() {
		if p.store, err = objectstore.Open(cfg.Objects); err != nil {
			return err
		}
	}
	cfg.NATS.Name, cfg.NATS.Logger = "mirror-jobs", p.log
	if p.nc, err = stream.Connect(ctx, cfg.NATS); err != nil {
		return err
	}
	defer p.nc.Close()
	if p.js, err = jetstream.New(p.nc); err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	if cfg.readsArchive() {
		p.catalog = catalog.New(catalog.Config{Site: cfg.Site, JetStream: p.js, Store: p.store, Log: p.log, Registerer: p.metrics,
			Naming: func(instrument string) string { return p.registry.Snapshot().Instruments[instrument].Naming },
			RepeatWindow: func(instrument string) time.Duration {
				e := p.registry.Snapshot().Instruments[instrument]
				return e.RepeatWindow()
			}})
	}
	return p.runWithServices(ctx)
}

// runWithServices runs what a run needs, until it ends.
func (p *program) runWithServices(ctx context.Context) error {
	all, ctx := errgroup.WithContext(ctx)
	if p.cfg.ListenHTTP != "" {
		http, err := telemetry.NewServer(telemetry.ServerConfig{Address: p.cfg.ListenHTTP, Metrics: p.metrics, Ready: p.ready})
		if err != nil {
			return err
		}
		all.Go(func() error { return http.Serve(ctx) })
	}
	all.Go(func() error { p.registry.Follow(ctx, p.js, p.cfg.Site, p.log); return nil })
	if p.catalog != nil {
		all.Go(func() error { _ = p.catalog.Run(ctx); return nil }) // its error is ctx's
	}
	var failed error
	all.Go(func() error {
		failed = p.work(ctx)
		return errDone
	})
	if err := all.Wait(); err != nil && !errors.Is(err, errDone) {
		return err
	}
	return failed
}

func (p *program) ready(context.Context) error {
	if p.registry.Snapshot().Revision == 0 {
		return errors.New("the registry of the Site was never seen complete: is the operator running, and does NATS answer?")
	}
	return nil
}

// entry is the MirrorPartner as the registry has it.
func (p *program) entry(ctx context.Context) (wire.MirrorEntry, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		s, changed := p.registry.Watch()
		if s.Revision > 0 {
			entry, declared := s.Mirrors[p.cfg.Partner]
			if !declared {
				return entry, fmt.Errorf("the Site %s has no MirrorPartner %s, or it is not accepted: see its conditions", p.cfg.Site, p.cfg.Partner)
			}
			return entry, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return wire.MirrorEntry{}, fmt.Errorf("the registry of Site %s is not known after %v: is the operator running, and does NATS answer?", p.cfg.Site, patience)
		}
	}
}

// work makes the run, or runs, while it holds the partner's lease.
func (p *program) work(ctx context.Context) error {
	entry, err := p.entry(ctx)
	if err != nil {
		return err
	}
	if p.report, err = newReport(ctx, p); err != nil {
		return err
	}
	leases, err := p.js.KeyValue(ctx, wire.LeaseBucket(p.cfg.Site))
	if err != nil {
		return fmt.Errorf("bucket %s: %w", wire.LeaseBucket(p.cfg.Site), err)
	}
	lease, err := p.acquire(ctx, leases, entry)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = lease.Release(ctx) // else it expires
	}()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-lease.Lost():
			stop(stream.ErrLeaseLost)
		case <-ctx.Done():
		}
	}()
	switch p.cfg.Trigger {
	case wire.MirrorContinuously:
		return p.follow(ctx)
	case wire.MirrorTimetable:
		return p.followSchedule(ctx)
	default:
		return p.once(ctx, entry, false)
	}
}

// acquire waits for the partner's lease, and reports that it does where that takes a while.
func (p *program) acquire(ctx context.Context, leases jetstream.KeyValue, entry wire.MirrorEntry) (*stream.Lease, error) {
	key := wire.MirrorLease(p.cfg.Partner, p.kind())
	waiting, stop := context.WithCancel(ctx)
	told := make(chan struct{})
	go func() {
		defer close(told)
		if p.cfg.Trigger != wire.MirrorTimetable && retry.Sleep(waiting, lookEvery) {
			p.report.begin(entry, &push.Progress{})
			p.report.reportWait(ctx, "", p.waitsFor(waiting, leases, key))
			p.report.run(waiting)
		}
	}()
	lease, err := stream.AcquireLease(ctx, leases, key, wire.Lease{Holder: p.cfg.Run, Incarnation: p.report.incarnation}, p.log)
	stop()
	<-told
	return lease, err
}

// waitsFor says which run has the lease.
func (p *program) waitsFor(ctx context.Context, leases jetstream.KeyValue, key string) string {
	is, found, err := stream.Load[wire.Lease](ctx, leases, key)
	if err != nil || !found {
		p.log.Debug("cannot read the holder of the lease", "lease", key, "error", err)
		return "it waits until the run before it has ended"
	}
	return fmt.Sprintf("it waits until run %q has ended", is.Holder)
}

// kind of the run: of one kind there is one at a time.
func (p *program) kind() string {
	if p.cfg.Trigger == wire.MirrorManual {
		return wire.MirrorManual
	}
	return wire.MirrorScheduled
}

// once makes one run, and reports its end.
func (p *program) once(ctx context.Context, entry wire.MirrorEntry, following bool) error {
	progress := &push.Progress{}
	p.report.begin(entry, progress)
	reporting, stop := context.WithCancel(ctx)
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		p.report.run(reporting)
	}()
	err := p.move(ctx, entry, following, progress)
	if p.cfg.Trigger != wire.MirrorContinuously {
		err = p.retryUnreached(ctx, entry, progress, err)
	}
	stop()
	<-reported
	for _, list := range bound.Of(err) {
		p.refused.WithLabelValues(list).Inc()
	}
	p.report.end(ctx, err)
	return err
}

// retryUnreached moves what is owed, from the beginning, to a partner that did not answer before. It returns how the last attempt ended.
func (p *program) retryUnreached(ctx context.Context, entry wire.MirrorEntry, progress *push.Progress, err error) error {
	for _, pause := range askAgain {
		var problem *push.Problem
		if !errors.As(err, &problem) || problem.Reason != wire.MirrorReasonUnreachable || problem.Answered || progress.Answered() {
			return err
		}
		p.report.reportWait(ctx, problem.Reason, fmt.Sprintf("it retries after %v: %s", pause, errorText(problem)))
		p.log.Info("the partner does not answer", "error", err, "again", pause)
		if !retry.Sleep(ctx, pause) {
			return err
		}
		progress = &push.Progress{}
		p.report.begin(entry, progress)
		err = p.move(ctx, entry, false, progress)
	}
	return err
}

// move moves what is owed. Following: it was begun by a notice.
func (p *program) move(ctx context.Context, entry wire.MirrorEntry, following bool, progress *push.Progress) error {
	if entry.Direction != wire.MirrorPush {
		return p.pull(ctx, entry, progress)
	}
	if p.catalog == nil {
		return errNoStore
	}
	mover, err := newMover(ctx, p.cfg, entry, "rsync")
	if err != nil {
		return err
	}
	book, err := push.OpenKV(ctx, p.js, p.cfg.Site, entry.Partner)
	if err != nil {
		return err
	}
	return push.Run(ctx, push.Config{
		Site: p.cfg.Site, Entry: entry, Registry: p.registry.Snapshot, Catalog: p.catalog, Store: p.store, Mover: mover, Book: book,
		At: func(ctx context.Context, place push.Place) (push.Mover, error) {
			return formerMover(ctx, p.cfg, entry, place)
		},
		Pause: func(ctx context.Context) error { return p.pause(ctx, entry.Limits) },
		From:  p.cfg.From, To: p.cfg.To, VerifyOnly: p.cfg.VerifyOnly, Force: p.cfg.Force, Following: following, Progress: progress, Logger: p.log,
	})
}

// pause waits while a maintenance window lasts. Errors: ctx's.
func (p *program) pause(ctx context.Context, limits wire.MirrorLimits) error {
	for {
		until, is := plan.Maintained(limits, time.Now())
		if !is {
			p.report.reportWait(ctx, "", "")
			return nil
		}
		p.report.reportWait(ctx, wire.MirrorReasonMaintenance, "a maintenance window lasts until "+wire.FormatTime(until))
		if !retry.Sleep(ctx, min(time.Until(until), time.Minute)) {
			return ctx.Err()
		}
	}
}

// follow makes a run whenever something was announced, and at intervals; after one that failed
// it backs off.
func (p *program) follow(ctx context.Context) error {
	// compared is when the last run began that looked at everything; following: the next one is begun by a notice.
	backOff, following, compared := firstBackOff, false, time.Time{}
	for {
		entry, err := p.entry(ctx)
		if err != nil {
			return err
		}
		if entry.Suspended {
			if !retry.Sleep(ctx, lookEvery) {
				return nil
			}
			continue
		}
		began := time.Now()
		var seen uint64
		if entry.Direction != wire.MirrorPull { // what is announced here is nothing that is there
			seen, err = p.announced(ctx)
		}
		if err == nil {
			err = p.once(ctx, entry, following)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			p.log.Warn("a run failed", "error", err, "again", backOff)
			if !retry.Sleep(ctx, backOff) {
				return nil
			}
			backOff = min(2*backOff, lastBackOff)
			continue
		}
		backOff = firstBackOff
		if !following {
			compared = began
		}
		interval := time.Hour
		if entry.Continuous != nil && entry.Continuous.IntervalMillis > 0 {
			interval = time.Duration(entry.Continuous.IntervalMillis) * time.Millisecond
		}
		for following = false; time.Since(compared) < interval; {
			if !retry.Sleep(ctx, lookEvery) {
				return nil
			}
			if entry.Direction == wire.MirrorPull {
				continue
			}
			if now, err := p.announced(ctx); err == nil && now != seen {
				following = true
				break
			}
		}
	}
}

// announced is the last notice's sequence.
func (p *program) announced(ctx context.Context) (uint64, error) {
	return stream.LastOf(ctx, p.js, wire.NoticeStream(p.cfg.Site), wire.NoticeSubjects(p.cfg.Site))
}
