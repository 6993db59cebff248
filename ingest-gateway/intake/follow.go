// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/durable"
	"github.com/substorm/substorm/internal/registry"
)

const (
	// saveDelay gathers revisions that come together into one write.
	saveDelay = 200 * time.Millisecond
	// saveRetry is between tries to write to a volume that takes nothing.
	saveRetry = 2 * time.Second
)

// FollowerConfig says which registry is followed, and for whom.
type FollowerConfig struct {
	Site  string
	Scope Scope
	// File on the gateway's volume keeps the last complete registry.
	File     string
	Registry *Registry
	Logger   *slog.Logger
	// Apply opens the ports of a snapshot that is now in force, and returns why
	// it could not, by instrument. It is never called twice at a time.
	Apply func(*Snapshot) map[string]string
	// Changed is called after a snapshot was applied.
	Changed func()
}

// Follower keeps a Registry equal to the Site's.
type Follower struct {
	cfg      FollowerConfig
	registry *registry.Registry
	// unsaved is the last complete snapshot that is not on the volume yet.
	unsaved *Snapshot
	// unsavedWhy is why the last try to save it failed, and saveAgain when the
	// next is due.
	unsavedWhy string
	saveAgain  time.Time
}

// NewFollower puts the registry that was last seen in force.
func NewFollower(cfg FollowerConfig) *Follower {
	if err := durable.Remove(cfg.File + durable.PartSuffix); err != nil {
		cfg.Logger.Warn("cannot remove the file that an interrupted write left on the volume", "error", err)
	}
	last, err := load(cfg.File, cfg.Site)
	if err != nil {
		cfg.Logger.Error("starting without the registry last seen", "error", err)
	}
	f := &Follower{cfg: cfg, registry: registry.From(last)}
	if last.Revision > 0 {
		cfg.Logger.Info("starting with the registry last seen", "revision", last.Revision, "instruments", len(last.Instruments))
		f.apply(resolve(&Snapshot{}, last, cfg.Scope))
	}
	return f
}

// Run follows the Site's registry until ctx ends. While NATS is away, what was
// last seen stays in force.
func (f *Follower) Run(ctx context.Context, js jetstream.JetStream) {
	settled := make(chan *registry.Snapshot)
	go func() {
		defer close(settled)
		f.registry.FollowEach(ctx, js, f.cfg.Site, f.cfg.Logger, func(s *registry.Snapshot) { settled <- s })
	}()
	ticks := time.NewTicker(saveDelay)
	defer ticks.Stop()
	defer f.save()
	for {
		select {
		case s, more := <-settled:
			if !more {
				return
			}
			f.resolve(s)
		case now := <-ticks.C:
			if !now.Before(f.saveAgain) {
				f.save()
			}
		}
	}
}

// resolve puts in force what follows from the registry.
func (f *Follower) resolve(r *registry.Snapshot) {
	prev := f.cfg.Registry.Current()
	next := resolve(prev, r, f.cfg.Scope)
	for name, problem := range next.Problems {
		if prev.Problems[name] != problem {
			f.cfg.Logger.Warn("instrument is not received as declared", "instrument", name, "problem", problem)
		}
	}
	f.apply(next)
	if r.Complete {
		f.unsaved = next
	}
}

// save writes the last complete snapshot to the volume, if it is not there yet. A write that failed is tried again.
func (f *Follower) save() {
	if f.unsaved == nil {
		return
	}
	if err := f.unsaved.save(f.cfg.File, f.cfg.Site); err != nil {
		f.saveAgain = time.Now().Add(saveRetry)
		if err.Error() != f.unsavedWhy {
			f.unsavedWhy = err.Error()
			f.cfg.Logger.Error("cannot save the registry, which a start without NATS needs; retrying", "error", err)
		}
		return
	}
	if f.unsavedWhy != "" {
		f.cfg.Logger.Info("the registry is saved again", "revision", f.unsaved.Revision)
	}
	f.unsaved, f.unsavedWhy, f.saveAgain = nil, "", time.Time{}
}

// apply puts a snapshot in force: first the permitted senders, then the ports.
func (f *Follower) apply(s *Snapshot) {
	f.cfg.Registry.current.Store(s)
	failed := f.cfg.Apply(s)
	if len(failed) > 0 {
		withPorts := *s
		withPorts.Problems = map[string]string{}
		for _, problems := range []map[string]string{s.Problems, failed} {
			for name, problem := range problems {
				withPorts.Problems[name] = problem
			}
		}
		f.cfg.Registry.current.Store(&withPorts)
	}
	f.cfg.Changed()
}
