// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// writeEvery is how often changed totals are written. A write that takes long is followed by a pause of
	// pauseFactor times as long, so that the ledger never takes more than a fifth of what JetStream can sync; and of
	// maxPause at most: one that took long because JetStream was away says nothing of that.
	writeEvery  = time.Second
	pauseFactor = 4
	maxPause    = 20 * time.Second
	// askTimeout bounds a question to JetStream.
	askTimeout = 10 * time.Second
	// lookEvery is how often is asked whether the bucket is still the same.
	lookEvery = 10 * time.Second
)

// ledgerSteps are the steps that a gateway writes.
var ledgerSteps = []wire.Step{wire.StepReceived, wire.StepStored, wire.StepAnnounced}

// writer keeps the Site's ledger as the cells are. It belongs to the goroutine in Run, and then to Close.
type writer struct {
	js        jetstream.JetStream
	kv        jetstream.KeyValue
	committer *stream.Committer
	// epoch of the bucket, as it was when it was looked at.
	epoch  string
	looked time.Time
	// entries are this gateway's entries as the ledger has them, other incarnations included.
	entries map[string]wire.LedgerEntry
	// based are the cells whose entries were looked up.
	based    map[*cell]bool
	previous []*previous // changed under Ledger.previous
	recounts time.Time   // when the next recount is due
	// adopted: what waited in the spool is adopted, so the recount's totals fit together.
	adopted atomic.Bool
}

// Run writes the totals to the Site's ledger each second in which they changed, and makes the totals of previous
// incarnations final, until ctx ends. Where JetStream is away it goes on trying. It is called once.
func (l *Ledger) Run(ctx context.Context, js jetstream.JetStream) error {
	committer, err := stream.NewCommitter(js.Conn(), stream.CommitterConfig{Stream: "KV_" + wire.LedgerBucket(l.cfg.Site)})
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	w := &l.writer
	w.js, w.committer = js, committer
	w.entries, w.based = map[string]wire.LedgerEntry{}, map[*cell]bool{}
	var said error
	for ctx.Err() == nil {
		begun := time.Now()
		err := errors.Join(l.write(ctx), l.advance(l.cfg.checkpointEvery), l.recountPrevious(ctx))
		if (err == nil) != (said == nil) && ctx.Err() == nil {
			if err != nil {
				l.log.Warn("the ledger cannot be written: totals are kept and written later", "error", err)
			} else {
				l.log.Info("the ledger is written again")
			}
			said = err
		}
		l.prune(time.Now())
		select {
		case <-time.After(max(l.cfg.writeEvery, min(pauseFactor*time.Since(begun), maxPause))):
		case <-ctx.Done():
		}
	}
	return nil
}

// Close writes the last totals and closes the files. Call it after Run returned; nothing may be counted any more. Where
// everything that was begun is accounted for and written, nothing is left to recount; otherwise the next incarnation
// does, and Close says why.
func (l *Ledger) Close(ctx context.Context) error {
	defer l.counters.close()
	if l.writer.committer == nil {
		return errors.New("ledger: closed before it ran: the next incarnation recounts")
	}
	err := errors.Join(l.write(ctx), l.writer.committer.Close(ctx))
	if err == nil && !l.allSettled() {
		err = errors.New("messages were on their way")
	}
	if err == nil && l.objectsOpen() {
		err = errors.New("objects were on their way")
	}
	if err == nil && l.cfg.Waiting != nil && l.cfg.Waiting() > 0 {
		err = errors.New("objects wait in the spool")
	}
	if err != nil {
		return fmt.Errorf("ledger: the next incarnation recounts: %w", err)
	}
	if err := l.savePosition(); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	return removeFiles(l.path)
}

// objectsOpen says whether an object was begun that neither was received nor is unfinished.
func (l *Ledger) objectsOpen() bool {
	begun, ended := uint64(0), uint64(0)
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, c := range l.cells {
		begun += c.slot.get(objectsBegun)
		ended += c.slot.get(objectsReceived) - c.slot.get(objectsAdopted)
		for i := range l.counters.causes {
			ended += c.slot.get(unfinishedFirst + counter(i))
		}
	}
	return begun > ended
}

func (l *Ledger) savePosition() error {
	p := &l.publications
	p.mu.Lock()
	at := p.epochs[p.current].from
	if p.streams != nil && p.acked.Observations.Sequence > 0 {
		at.Observations = place{p.streams.Observations.Epoch, p.acked.Observations.Sequence}
	}
	if p.streams != nil && p.acked.Notices.Sequence > 0 {
		at.Notices = place{p.streams.Notices.Epoch, p.acked.Notices.Sequence}
	}
	p.mu.Unlock()
	return writeJSON(l.path[:len(l.path)-len(l.cfg.Incarnation)]+positionFile, at)
}

// connect finds the ledger's bucket and the base streams.
func (l *Ledger) connect(ctx context.Context) error {
	w := &l.writer
	if w.kv != nil {
		return nil
	}
	if !w.js.Conn().IsConnected() {
		return nats.ErrDisconnected
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var at position
	for name, epoch := range map[string]*string{
		wire.ObservationStream(l.cfg.Site): &at.Observations.Epoch, wire.NoticeStream(l.cfg.Site): &at.Notices.Epoch,
	} {
		s, err := w.js.Stream(ctx, name)
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		*epoch = wire.StreamEpoch(s.CachedInfo().Created)
	}
	kv, err := w.js.KeyValue(ctx, wire.LedgerBucket(l.cfg.Site))
	if err != nil {
		return fmt.Errorf("bucket %s: %w", wire.LedgerBucket(l.cfg.Site), err)
	}
	l.publications.mu.Lock()
	l.publications.streams = &at
	l.publications.mu.Unlock()
	w.kv = kv
	return nil
}

// look has all totals written once more where the bucket was made anew: the one that held them is lost.
func (l *Ledger) look(ctx context.Context) error {
	w := &l.writer
	if w.kv == nil || !w.js.Conn().IsConnected() || time.Since(w.looked) < lookEvery {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	epoch, _, err := stream.Epoch(ctx, w.js, "KV_"+wire.LedgerBucket(l.cfg.Site))
	if err != nil {
		return err
	}
	if w.epoch != "" && w.epoch != epoch {
		l.log.Warn("the ledger was made anew: all totals are written once more")
		l.mu.RLock()
		for _, c := range l.cells {
			c.dirty.Store(true)
		}
		l.mu.RUnlock()
	}
	w.epoch, w.looked = epoch, time.Now()
	return nil
}

// write puts the totals of all cells that changed.
func (l *Ledger) write(ctx context.Context) error {
	if err := errors.Join(l.connect(ctx), l.look(ctx)); err != nil {
		return err
	}
	l.mu.RLock()
	var changed []*cell
	for _, c := range l.cells {
		if c.dirty.Swap(false) {
			changed = append(changed, c)
		}
	}
	causes := l.counters.causes
	l.mu.RUnlock()
	p := l.newPuts(ctx)
	for _, c := range changed {
		if err := l.base(ctx, c); err != nil {
			p.fail(c, err)
			continue
		}
		for _, step := range ledgerSteps {
			if t := c.totals(step, causes); !isZero(t) {
				p.put(c, wire.LedgerKey(c.key.instrument, c.day, step, l.cfg.Gateway), l.cfg.Incarnation, t)
			}
		}
	}
	return p.wait()
}

// base looks up what the ledger holds of a cell's steps, once. Where this incarnation is among it, the cell was dropped
// from memory and came back, and counts on from there.
func (l *Ledger) base(ctx context.Context, c *cell) error {
	w := &l.writer
	if w.based[c] {
		return nil
	}
	found := map[wire.Step]wire.Totals{}
	for _, step := range ledgerSteps {
		e, err := l.entry(ctx, wire.LedgerKey(c.key.instrument, c.day, step, l.cfg.Gateway))
		if err != nil {
			return err
		}
		if t, ok := e.Incarnations[l.cfg.Incarnation]; ok {
			found[step] = t
		}
	}
	for step, t := range found {
		c.adopt(step, t, l.cause)
	}
	w.based[c] = true
	return nil
}

// entry returns this gateway's entry under a key, empty where there is none.
func (l *Ledger) entry(ctx context.Context, key string) (wire.LedgerEntry, error) {
	w := &l.writer
	if e, ok := w.entries[key]; ok {
		return e, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var e wire.LedgerEntry
	v, err := w.kv.Get(ctx, key)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
	case err != nil:
		return e, fmt.Errorf("ledger entry %s: %w", key, err)
	default:
		if e, err = wire.DecodeLedgerEntry(v.Value()); err != nil {
			return e, fmt.Errorf("ledger entry %s: %w", key, err)
		}
	}
	if e.Incarnations == nil {
		e.Incarnations = map[string]wire.Totals{}
	}
	w.entries[key] = e
	return e, nil
}

// puts are entries on their way to the bucket.
type puts struct {
	ledger *Ledger
	ctx    context.Context
	flying sync.WaitGroup
	mu     sync.Mutex
	errs   []error
}

func (l *Ledger) newPuts(ctx context.Context) *puts { return &puts{ledger: l, ctx: ctx} }

// put writes an incarnation's totals into the entry under key, which was looked up. C is counted as changed again where
// that fails.
func (p *puts) put(c *cell, key, incarnation string, t wire.Totals) {
	w := &p.ledger.writer
	e := w.entries[key]
	e.Incarnations[incarnation] = t
	value, err := e.Encode()
	if err != nil {
		p.fail(c, err)
		return
	}
	p.flying.Add(1)
	msg := &nats.Msg{Subject: "$KV." + wire.LedgerBucket(p.ledger.cfg.Site) + "." + key, Data: value}
	err = w.committer.Submit(p.ctx, msg, func(_ stream.Ack, err error) {
		if err != nil {
			p.fail(c, err)
		}
		p.flying.Done()
	})
	if err != nil {
		p.fail(c, err)
		p.flying.Done()
	}
}

func (p *puts) fail(c *cell, err error) {
	if c != nil {
		c.dirty.Store(true)
	}
	p.mu.Lock()
	p.errs = append(p.errs, err)
	p.mu.Unlock()
}

// wait returns when everything is settled, or with ctx's error. Only the first of the errors is returned.
func (p *puts) wait() error {
	settled := make(chan struct{})
	go func() { p.flying.Wait(); close(settled) }()
	select {
	case <-settled:
	case <-p.ctx.Done():
		p.fail(nil, p.ctx.Err())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.errs) == 0 {
		return nil
	}
	return fmt.Errorf("write the ledger: %w", p.errs[0])
}

func isZero(t wire.Totals) bool {
	return t.Objects == 0 && t.Datagrams == 0 && t.Acknowledged == 0 && t.UnfinishedBytes == 0 && t.Unknown == 0 &&
		len(t.Unfinished) == 0 && len(t.Dropped) == 0
}

// prune drops cells of days that are over, once they are written and nobody counts in them any more.
func (l *Ledger) prune(at time.Time) {
	now := at.Unix()
	keep := int64(keepCells / time.Second)
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, c := range l.cells {
		if now-(key.day+1)*secondsPerDay < keep || now-c.touched.Load() < keep || c.dirty.Load() {
			continue
		}
		if c.open[0] != (announced{}) || c.open[1] != (announced{}) {
			continue // settled soon
		}
		delete(l.cells, key)
		delete(l.writer.based, c)
		for _, step := range ledgerSteps {
			delete(l.writer.entries, wire.LedgerKey(key.instrument, c.day, step, l.cfg.Gateway))
		}
		l.counters.release(c.slot)
	}
}
