// SPDX-License-Identifier: Apache-2.0

// Package pull copies an archive into a folder. A run asks another Substorm for its mirror index, and only for the parts that changed
// since the last run: first the root, then the days of instruments, then the lists of days. It fetches what the lists have and the mirror
// lacks.
//
//	root ─► days ─► lists ─► plan ─► bundles, large objects ─► folder ─► committed lists ─► tags
//
// Each stage hands batches to the next, which takes no more than it can hold.
package pull

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/mirror-jobs/folder"
	"github.com/substorm/substorm/mirror-jobs/https"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/summary"
)

const (
	// DefaultConnections to the other side.
	DefaultConnections = 16
	// bundlesAtOnce are fetched at the same time, where the other side sends so many, and so are
	// largeAtOnce large objects.
	bundlesAtOnce = 6
	largeAtOnce   = 6
)

// Config says what is pulled where.
type Config struct {
	Source *https.Client
	Folder *folder.Folder
	// Instruments are names, or patterns of names as path.Match has them; none: all.
	Instruments []string
	// Selection by observation time. Run sets Wants.
	plan.Selection
	plan.Policy
	// Force: what the last run knew of the other side is not believed, and there is no safety
	// stop.
	Force bool
	// AcceptLoss has a run with Force forget the copies that are lost here and that the other side does not give any more.
	AcceptLoss bool
	// Connections to the other side at most.
	Connections int
	Progress    *Progress
	Logger      *slog.Logger
}

// ErrLeft: a run did what it could, and some objects are missing still.
var ErrLeft = errors.New("some objects could not be mirrored")

// ErrNothingSelected: the other side lets this mirror read none of the instruments that are selected.
var ErrNothingSelected = errors.New("the other side has none of the Instruments that are selected, or does not let you read them")

// Run makes one run. Errors: ErrLeft, ErrNothingSelected, VanishedError, plan.SafetyStopError, of the source, of the folder.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Connections <= 0 {
		cfg.Connections = DefaultConnections
	}
	if cfg.Force {
		cfg.SafetyStop = 0
	}
	if len(cfg.Instruments) > 0 {
		cfg.Wants = func(name string) bool {
			return slices.ContainsFunc(cfg.Instruments, func(pattern string) bool { return matches(pattern, name) })
		}
	}
	p := &run{Config: cfg, log: summary.New(cfg.Logger),
		wanted: make(chan []*day), bundles: make(chan batch, cfg.Connections), large: make(chan batch, cfg.Connections), ready: make(chan *day, readyDays),
		open: map[*day]bool{}, replaced: map[copyOf]bool{}, last: map[copyOf]bool{}}
	defer p.log.Flush()
	return p.do(ctx)
}

// run is one run.
type run struct {
	Config
	log  *summary.Log
	site string
	// wanted are the days whose lists are to be asked for, some at a time; bundles and large
	// objects are to be fetched; ready are days with which nothing is left to do but to note it.
	wanted         chan []*day
	bundles, large chan batch
	ready          chan *day
	surplus        surplus
	// compares: the run compares all files, and not what was noted of them.
	compares bool
	lost     lost
	confirming

	mu sync.Mutex
	// open are days whose lists came and that are not ready.
	open map[*day]bool
	// finished are instruments none of whose days is left to be noted.
	finished []*instrument
	// replaced are copies that were here when their lists of this run came, as superseded.
	replaced map[copyOf]bool
	// last are copies of objects that the other side does not list any more, under paths of others.
	last map[copyOf]bool
}

func (p *run) do(ctx context.Context) error {
	p.Folder.Select(p.selects())
	state := p.Folder.State()
	if p.compares = p.Force || state.Forced; p.compares {
		state.ETag, state.Instruments = "", nil
	}
	if p.Force { // before anything is compared: a forced run that is stopped is made again
		if err := errors.Join(p.Folder.SetForced(true), p.Folder.Sync()); err != nil {
			return err
		}
	}
	begun := time.Now()
	root, etag, unchanged, err := p.Source.Root(ctx, state.ETag)
	if err != nil {
		return err
	}
	clock := p.checkClock(root.Now)
	p.noteAwaited(root, unchanged)
	if unchanged {
		if plan.ClockMoved(state.Now, p.Folder.State().Now) {
			clock = errors.Join(p.Folder.SetETag(state.ETag), clock)
		}
		return errors.Join(p.endRun(ctx, begun, 0, true), clock)
	}
	if err := p.Folder.BelongsTo(root.Site); err != nil {
		return err
	}
	p.site = root.Site
	missing, unselected := p.checkNames(root)
	held, err := p.Folder.Instruments()
	if err != nil {
		return err
	}
	vanished := p.checkVanished(root, held)
	if p.isNew && unselected == nil {
		p.confirmNothing(ctx, root)
	}
	isHeld := make(map[string]bool, len(held))
	for _, name := range held {
		isHeld[name] = true
	}
	changed := p.Selection.Instruments(root, func(name string) bool { return isHeld[name] }, func(name string) string {
		if p.sweeps {
			return ""
		}
		return state.Instruments[name]
	})
	done, err := p.pullInstruments(ctx, changed)
	if err == nil && unselected == nil {
		p.Folder.SetConfirms(p.awaited)
		err = p.Folder.RemoveParts()
	}
	if err == nil && p.compares && unselected == nil { // all is compared, and noted
		err = errors.Join(p.Folder.Sync(), p.Folder.SetForced(false))
	}
	if err == nil {
		err = p.removeSurplus(ctx)
	}
	if err == nil && done.left > 0 {
		err = fmt.Errorf("%w: %d, which the next run tries again", ErrLeft, done.left)
	}
	if err == nil || errors.Is(err, ErrLeft) {
		err = errors.Join(err, p.lost.err(), p.endRun(ctx, begun, done.left+p.lost.objects.Load(), unselected == nil))
	}
	err = errors.Join(unselected, err, vanished, clock)
	if unselected != nil || vanished != nil || clock != nil || done.instruments < len(changed) || missing || root.Confirms && !p.Folder.State().Confirms {
		etag = "" // the next run must look at the rest, say again which names are missing, what vanished or that the clock is wrong, or confirm all
	}
	// It need not be on the disk: without it, the next run asks more than it must.
	return errors.Join(err, p.Folder.SetETag(etag))
}

// checkClock says what is wrong with the clock of the other side; nil: nothing, or nothing is known of it. Errors: plan.ClockError.
func (p *run) checkClock(says time.Time) error {
	state := p.Folder.State()
	latest, wrong := plan.CheckClock(says, state.Now, time.Now())
	p.Folder.SetNow(latest)
	if wrong != nil {
		return wrong
	}
	return nil
}

// pullInstruments does what the lists say of some instruments. The committer that it returns has noted all that came, also if there is an error.
func (p *run) pullInstruments(ctx context.Context, changed []mirrorindex.RootLine) (*committer, error) {
	commits := &committer{p: p, ctx: ctx}
	committed := make(chan struct{})
	go func() {
		defer close(committed)
		commits.run()
	}()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(p.wanted)
		return p.index(ctx, changed)
	})
	group.Go(func() error {
		defer close(p.bundles)
		defer close(p.large)
		return p.lists(ctx)
	})
	for range min(p.Connections, bundlesAtOnce) {
		group.Go(func() error { return p.fetchBundles(ctx) })
	}
	for range min(p.Connections, largeAtOnce) {
		group.Go(func() error { return p.fetchLarge(ctx) })
	}
	err := group.Wait()
	for d := range p.open { // an error ended the run before them
		d.failed += d.open
		p.ready <- d
	}
	close(p.ready)
	<-committed
	return commits, errors.Join(err, commits.err)
}

// markReady passes a day on to be noted.
func (p *run) markReady(d *day) {
	p.mu.Lock()
	delete(p.open, d)
	p.mu.Unlock()
	p.ready <- d
}

// markOpen notes that objects of a day are to be fetched.
func (p *run) markOpen(d *day) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[d] = true
}

// finish notes that nothing of an instrument is left.
func (p *run) finish(in *instrument) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished = append(p.finished, in)
}

// takeFinished returns the instruments that were finished since it was called last.
func (p *run) takeFinished() []*instrument {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.finished
	p.finished = nil
	return all
}
