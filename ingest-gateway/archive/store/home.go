// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/substorm/substorm/ingest-gateway/announce"
	"github.com/substorm/substorm/ingest-gateway/archive/spool"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// homeward is how many objects go home from the spool by themselves at a time:
	// half of what the store gets, so that a backlog leaves room for what comes in.
	homeward = DefaultConcurrency / 2
	// homePause is between tries that failed, once a try has been patient itself.
	homePause = time.Second
	// lastWords is how long a notice on its way may take once the gateway ends.
	lastWords = 5 * time.Second
	// flushLook is how often a drain looks whether the spool is empty.
	flushLook = 50 * time.Millisecond
)

// homing is what is known of objects on their way from the spool home.
type homing struct {
	// streamAway: the last that was heard of JetStream is that it does not answer.
	streamAway atomic.Bool

	mu sync.Mutex
	// storing has a place for each object that may be on its way to the store.
	storing chan struct{}

	// flying are notices that were published and went to the spool, by id,
	// before it was known what became of them.
	flying map[string]chan outcome

	// adopted is closed once what an earlier incarnation left is counted;
	// before says which incarnation announced it nevertheless, by id.
	adopted chan struct{}
	before  map[string]string
}

func (h *homing) fly(id string, settled chan outcome) {
	h.mu.Lock()
	h.flying[id] = settled
	h.mu.Unlock()
}

// land returns what fly noted, if anything, and forgets it.
func (h *homing) land(id string) chan outcome {
	h.mu.Lock()
	defer h.mu.Unlock()
	settled := h.flying[id]
	delete(h.flying, id)
	return settled
}

// BringHome stores and announces what waits in the spool, in its order, and
// removes packs whose members went there, until ctx ends.
func (a *Archive) BringHome(ctx context.Context) error {
	var workers sync.WaitGroup
	workers.Go(func() { a.discardPacks(ctx) })
	defer workers.Wait()
	if a.cfg.Spool == nil {
		return nil
	}
	g := &gatherer{archive: a, small: make(chan *spool.Entry)}
	alone := make(chan *spool.Entry)
	workers.Go(func() { a.feed(ctx, alone, g.small) })
	for range 2 * homeward { // as many again wait for JetStream and the spool's disk
		workers.Go(func() { a.bringAlone(ctx, alone) })
	}
	for range homePacks {
		workers.Go(func() { g.bringPacks(ctx) })
	}
	workers.Go(func() { a.adopt(ctx) })
	return nil
}

// feed hands out what waits in the spool, the oldest first, until ctx ends.
func (a *Archive) feed(ctx context.Context, alone, small chan<- *spool.Entry) {
	for ctx.Err() == nil {
		e, err := a.cfg.Spool.Next(ctx)
		if err != nil {
			if a.report(ctx, err) {
				pause(ctx, homePause)
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

// bringAlone brings home what goes by itself.
func (a *Archive) bringAlone(ctx context.Context, alone <-chan *spool.Entry) {
	for {
		select {
		case e := <-alone:
			if a.report(ctx, a.bringHome(ctx, e)) {
				pause(ctx, homePause)
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

// Flush returns once the spool is empty, ctx ends, or what it holds cannot go
// home: then it stays on the volume.
func (a *Archive) Flush(ctx context.Context) {
	if a.cfg.Spool == nil {
		return
	}
	for a.cfg.Spool.Stats().Objects > 0 && !a.health.away() && !a.homing.streamAway.Load() && pause(ctx, flushLook) {
	}
	if st := a.cfg.Spool.Stats(); st.Objects > 0 {
		a.cfg.Logger.Warn("objects stay in the spool on the volume: the next start brings them home",
			"objects", st.Objects, "bytes", st.Bytes, "oldest", st.Oldest)
	}
}

// pause returns false where ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// adopt counts what earlier incarnations left in the spool, once JetStream says
// which of that they had announced.
func (a *Archive) adopt(ctx context.Context) {
	for {
		before, err := a.cfg.Ledger.Announced(ctx, a.cfg.JetStream)
		if err == nil {
			a.homing.before = before
			err = a.cfg.Spool.Waiting(func(n wire.Notice, _ bool) {
				if before[n.ID] == "" {
					a.cfg.Ledger.Adopt(n.Instrument, n.ReceivedAt, n.Size, n.Digest)
				}
			})
			if err != nil {
				a.cfg.Logger.Error("the ledger lacks what waits in the spool", "error", err)
			}
			a.cfg.Ledger.AdoptedAll()
			close(a.homing.adopted)
			return
		}
		if !pause(ctx, homePause) {
			return
		}
	}
}

// isAdopted says whether an earlier incarnation received an object.
func (a *Archive) isAdopted(e *spool.Entry) bool { return e.Notice.Incarnation != a.cfg.Incarnation }

// bringHome sees one object home. It returns an error where that is given up:
// ctx has ended, or it is in quarantine and that failed.
func (a *Archive) bringHome(ctx context.Context, e *spool.Entry) error {
	n := e.Notice
	adopted := a.isAdopted(e)
	if !e.Stored {
		var err error
		a.homing.storing <- struct{}{}
		n, err = a.storeEntry(ctx, e)
		<-a.homing.storing
		switch {
		case errors.Is(err, spool.ErrCorrupt):
			return a.quarantine(ctx, e, adopted, err)
		case errors.Is(err, errRepeated):
			return a.finishRepeated(ctx, e, adopted)
		case err != nil:
			return err
		}
	}
	return a.arrived(ctx, e, n)
}

// arrived announces an object from the spool that is in the store, as n says, and
// finishes its entry.
func (a *Archive) arrived(ctx context.Context, e *spool.Entry, n wire.Notice) error {
	adopted := a.isAdopted(e)
	if !adopted && !e.Stored {
		a.cfg.Ledger.Stored(n.Instrument, n.ReceivedAt, n.Size, n.Digest)
	}
	if adopted {
		select {
		case <-a.homing.adopted:
		case <-ctx.Done():
			return ctx.Err()
		}
		if by := a.homing.before[n.ID]; by != "" {
			if n.ID != e.Notice.ID { // so adopt could not know
				a.cfg.Ledger.Unreceive(n.Instrument, n.ReceivedAt, n.Size, n.Digest, true)
			}
			return a.wasHome(e, by)
		}
	}
	d, by, err := a.announceEntry(ctx, n)
	if err != nil {
		return err
	}
	if by != a.cfg.Incarnation {
		d.Leave()
		a.cfg.Ledger.Unreceive(n.Instrument, n.ReceivedAt, n.Size, n.Digest, adopted)
		return a.wasHome(e, by)
	}
	// The spool forgets it before the ledger counts it: so the next incarnation
	// finds in the stream what this one announced and the spool still has.
	if err := a.finish(e); err != nil {
		return err
	}
	if adopted {
		a.cfg.Ledger.Stored(n.Instrument, n.ReceivedAt, n.Size, n.Digest)
	}
	d.Count()
	a.named(n)
	a.metrics.received(n.Instrument, n.Size)
	return nil
}

// wasHome finishes an entry that an earlier incarnation announced, and counts.
func (a *Archive) wasHome(e *spool.Entry, by string) error {
	n := e.Notice
	if by == n.Incarnation {
		if err := a.cfg.Ledger.WasAnnounced(by, n.Instrument, n.ID, n.Size); err != nil {
			return err
		}
	}
	return a.finish(e)
}

// quarantine keeps a corrupt entry apart. It was receipted: the ledger says that
// it is lost, and why.
func (a *Archive) quarantine(ctx context.Context, e *spool.Entry, adopted bool, why error) error {
	n := e.Notice
	if adopted {
		select {
		case <-a.homing.adopted:
		case <-ctx.Done():
			return ctx.Err()
		}
		if by := a.homing.before[n.ID]; by != "" {
			return a.wasHome(e, by)
		}
		a.cfg.Ledger.ObjectBegun(n.Instrument, n.ReceivedAt)
	}
	if err := e.Quarantine(why); err != nil {
		return err
	}
	a.cfg.Ledger.Unreceive(n.Instrument, n.ReceivedAt, n.Size, n.Digest, adopted)
	a.cfg.Ledger.Unfinished(n.Instrument, n.ReceivedAt, wire.CauseCorrupt, n.Size)
	return nil
}

// Quarantined counts corrupt bytes of the spool that were put into quarantine.
func (a *Archive) Quarantined(q spool.Quarantine) {
	instrument, at := wire.UnknownInstrument, time.Now()
	if q.Notice != nil {
		instrument, at = q.Notice.Instrument, q.Notice.ReceivedAt
	}
	if q.Notice != nil && q.Notice.Incarnation == a.cfg.Incarnation {
		a.cfg.Ledger.Unreceive(instrument, at, q.Notice.Size, q.Notice.Digest, false)
	} else {
		a.cfg.Ledger.ObjectBegun(instrument, at)
	}
	a.cfg.Ledger.Unfinished(instrument, at, wire.CauseCorrupt, q.Size)
}

// announceEntry announces an object that is stored, and tries until ctx ends. It
// returns which incarnation's announcement it is.
func (a *Archive) announceEntry(ctx context.Context, n wire.Notice) (*announce.Announcement, string, error) {
	settled := a.homing.land(n.ID)
	for said := false; ; said = true {
		if settled == nil {
			settled = make(chan outcome, 1)
			publish, cancel := context.WithCancel(ctx)
			cancel() // what became of it comes over the channel
			_, _ = a.cfg.Publisher.Publish(publish, n, func(d *announce.Announcement, err error) { settled <- outcome{d, err} })
		}
		d, err := a.await(ctx, settled)
		if err == nil {
			a.homing.streamAway.Store(false)
			var by string
			for by == "" {
				if by, err = d.Publisher(ctx); err != nil && !pause(ctx, homePause) {
					return nil, "", err
				}
			}
			return d, by, nil
		}
		if ctx.Err() != nil {
			return nil, "", err
		}
		if !said {
			a.cfg.Logger.Warn("a spooled object's notice is not taken: it is tried again", "key", n.Key, "error", err)
		}
		settled = nil
		pause(ctx, homePause)
	}
}

// await waits for what becomes of a notice; a little longer than ctx.
func (a *Archive) await(ctx context.Context, settled chan outcome) (*announce.Announcement, error) {
	select {
	case o := <-settled:
		return o.announcement, o.err
	case <-ctx.Done():
	}
	select {
	case o := <-settled:
		return o.announcement, o.err
	case <-time.After(lastWords):
		return nil, fmt.Errorf("%w: %w", stream.ErrUnavailable, context.Cause(ctx))
	}
}
