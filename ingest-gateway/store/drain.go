// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/substorm/substorm/ingest-gateway/spool"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// drainAlone is how many objects drain from the spool by themselves at a time:
	// half of what the store gets, so that a backlog leaves space for what comes in.
	drainAlone = DefaultConcurrency / 2
	// drainPause is between tries that failed, once a try has been patient itself.
	drainPause = time.Second
	// flushLook is how often a drain looks whether the spool is empty.
	flushLook = 50 * time.Millisecond
)

// Drain stores and announces what waits in the spool, in its order, and reports
// packs that could not be stored, until ctx ends.
func (a *Archive) Drain(ctx context.Context) error {
	var workers sync.WaitGroup
	workers.Go(func() { a.reportFailedPacks(ctx) })
	defer workers.Wait()
	if a.cfg.Spool == nil {
		return nil
	}
	g := &gatherer{archive: a, small: make(chan *spool.Entry)}
	alone := make(chan *spool.Entry)
	workers.Go(func() { a.feed(ctx, alone, g.small) })
	for range 2 * drainAlone { // as many again wait for JetStream and the spool's disk
		workers.Go(func() { a.drainSingles(ctx, alone) })
	}
	for range drainedPacks {
		workers.Go(func() { g.drainPacks(ctx) })
	}
	return nil
}

// feed hands out what waits in the spool, the oldest first, until ctx ends.
func (a *Archive) feed(ctx context.Context, alone, small chan<- *spool.Entry) {
	for ctx.Err() == nil {
		e, err := a.cfg.Spool.Next(ctx)
		if err != nil {
			if a.report(ctx, err) {
				retry.Sleep(ctx, drainPause)
			}
			continue
		}
		to := alone
		if sharesPack(e) {
			to = small
		}
		select {
		case to <- e:
		case <-ctx.Done():
		}
	}
}

// drainSingles drains what goes by itself.
func (a *Archive) drainSingles(ctx context.Context, alone <-chan *spool.Entry) {
	for {
		select {
		case e := <-alone:
			if a.report(ctx, a.drainEntry(ctx, e)) {
				retry.Sleep(ctx, drainPause)
			}
		case <-ctx.Done():
			return
		}
	}
}

// report logs what the spool's disk does, unless ctx ended, and says whether it did.
func (a *Archive) report(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil {
		return false
	}
	a.cfg.Logger.Error("the spool cannot be read", "error", err)
	return true
}

// Flush returns once the spool is empty, ctx ends, or what it holds cannot be
// stored: then it stays on the volume.
func (a *Archive) Flush(ctx context.Context) {
	if a.cfg.Spool == nil {
		return
	}
	for a.cfg.Spool.Stats().Objects > 0 && !a.health.away() && !a.streamAway.Load() && retry.Sleep(ctx, flushLook) {
	}
	if st := a.cfg.Spool.Stats(); st.Objects > 0 {
		a.cfg.Logger.Warn("objects stay in the spool on the volume: the next start drains them",
			"objects", st.Objects, "bytes", st.Bytes, "oldest", st.Oldest)
	}
}

// drainEntry drains one object. It returns an error if that is given up: ctx has ended, or it is in
// quarantine and that failed.
func (a *Archive) drainEntry(ctx context.Context, e *spool.Entry) error {
	n := e.Notice
	if !e.Stored {
		var err error
		a.storing <- struct{}{}
		n, err = a.storeEntry(ctx, e)
		<-a.storing
		switch {
		case errors.Is(err, spool.ErrCorrupt) || errors.Is(err, errUnstorable):
			return a.quarantine(e, err)
		case errors.Is(err, errDuplicate):
			return a.finishDuplicate(e)
		case err != nil:
			return err
		}
	}
	return a.announceStored(ctx, e, n)
}

// announceStored announces an object from the spool that is in the store, as n says, and
// finishes its entry. An earlier incarnation may have announced it: the second notice
// of one ID changes nothing.
func (a *Archive) announceStored(ctx context.Context, e *spool.Entry, n wire.Notice) error {
	if err := a.announceEntry(ctx, n); err != nil {
		return err
	}
	if err := a.finish(e); err != nil {
		return err
	}
	a.metrics.received(n.Instrument, n.Size)
	return nil
}

// quarantine keeps an entry apart that is corrupt, or that the store does not take. It
// was receipted: the ledger says that it is not in the archive, and why.
func (a *Archive) quarantine(e *spool.Entry, why error) error {
	return a.cfg.Ledger.Resolved(e.Notice, wire.CauseCorrupt, func() error { return e.Quarantine(why) })
}
