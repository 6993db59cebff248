// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/substorm/substorm/ingest-gateway/spool"
)

const (
	// look is how often the log is searched for objects that their owners do not drain.
	look = 10 * time.Second
	// round is how many drain before the owner is asked after again.
	round = 256
)

// Owner is what is known of an owner.
type Owner struct {
	// Silent is for how long it has not reported, while it could have.
	Silent time.Duration
	// SpoolSince is when the oldest object that it says it has in its spool was
	// received; zero where it says that the spool is empty.
	SpoolSince time.Time
}

// DrainConfig says when copies drain, and how.
type DrainConfig struct {
	// After is how long an owner may be silent, and how old a copy may be that the
	// owner says it does not have any more.
	After time.Duration
	// Owner returns what is known of an owner, and false where nothing can be:
	// JetStream is away.
	Owner func(name string) (Owner, bool)
	// Bring archives objects unless they are there, and returns an error for each
	// that is not archived.
	Bring func(ctx context.Context, all []*spool.Entry) []error
	// Every is how often to look; 0 is a default.
	Every time.Duration
}

// Drain archives what owners that are silent left, until ctx ends.
func (l *Log) Drain(ctx context.Context, cfg DrainConfig) error {
	if cfg.Every <= 0 {
		cfg.Every = look
	}
	tick := time.NewTicker(cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, o := range l.all() {
			o.drain(ctx, cfg, l)
		}
	}
}

func (l *Log) all() []*owner {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.owners))
}

// drain archives one owner's copies, as long as that is called for.
func (o *owner) drain(ctx context.Context, cfg DrainConfig, l *Log) {
	brought := 0
	for ctx.Err() == nil {
		known, ok := cfg.Owner(o.name)
		if !ok {
			break
		}
		due := o.due(cfg, known)
		if len(due) == 0 {
			break
		}
		n, err := o.archive(ctx, cfg, due)
		brought += n
		if err != nil && ctx.Err() == nil {
			l.cfg.Logger.Warn("copies of another gateway's spool are not archived yet; retrying", "owner", o.name, "error", err)
			break
		}
	}
	if brought > 0 {
		l.cfg.Logger.Info("copies of another gateway's spool are archived", "owner", o.name, "objects", brought)
	}
}

// due returns copies that the owner will not drain: it is silent, or it
// does not have them in its spool any more and never said what became of them.
func (o *owner) due(cfg DrainConfig, known Owner) [][16]byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	var due [][16]byte
	for k, c := range o.copies {
		forgotten := time.Since(c.receivedAt) > cfg.After && (known.SpoolSince.IsZero() || c.receivedAt.Before(known.SpoolSince))
		if !c.busy && (known.Silent > cfg.After || forgotten) {
			due = append(due, k)
		}
		if len(due) == round {
			break
		}
	}
	for _, k := range due {
		c := o.copies[k]
		c.busy = true
		o.copies[k] = c
	}
	return due
}

// archive archives copies, and returns how many are.
func (o *owner) archive(ctx context.Context, cfg DrainConfig, due [][16]byte) (archived int, err error) {
	keys := make([][16]byte, 0, len(due))
	all := make([]*spool.Entry, 0, len(due))
	for _, k := range due {
		o.mu.Lock()
		c := o.copies[k]
		o.mu.Unlock()
		e, broken := o.spool.At(c.ref)
		if broken != nil {
			err = o.settle(k, broken)
			continue
		}
		keys, all = append(keys, k), append(all, e)
	}
	for i, failed := range cfg.Bring(ctx, all) {
		if errors.Is(failed, spool.ErrCorrupt) {
			failed = all[i].Quarantine(failed) // which is also Done
		} else if failed == nil {
			failed = o.spool.Done(all[i])
		}
		if failed = o.settle(keys[i], failed); failed == nil {
			archived++
		} else {
			err = failed
		}
	}
	return archived, err
}

// settle forgets a copy that is archived, and returns why one is not.
func (o *owner) settle(k [16]byte, err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		delete(o.copies, k)
		return nil
	}
	c := o.copies[k]
	c.busy = false
	o.copies[k] = c
	return err
}
