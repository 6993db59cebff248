// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/durable"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// writeEvery is how often changed totals are written. A write that takes long is followed by a pause of
	// pauseFactor times as long, so that the ledger never takes more than a fifth of what JetStream can sync; and of
	// maxPause at most: a write that took long because JetStream was away says nothing about its speed.
	writeEvery  = time.Second
	pauseFactor = 4
	maxPause    = 20 * time.Second
	// askTimeout bounds a question to JetStream.
	askTimeout = 10 * time.Second
	// lookEvery is how often is asked whether the bucket is still the same.
	lookEvery = 10 * time.Second
	// keepEntries is how long what the bucket has of a day of an instrument of another Site is remembered.
	keepEntries = 10 * time.Minute
	// endedAtOnce is how many days of ended incarnations are written in one pass, beside those that change.
	endedAtOnce = 256
)

// known is an entry of the bucket. Another pod of the gateway's name may write it, too: a twin behind a partition, when
// the gateway was given up and recreated. So each write names the revision that it replaces, and each pod changes only
// what its own incarnations counted.
type known struct {
	wire.LedgerEntry
	value    []byte
	revision uint64
	// outdated: another pod wrote it since.
	outdated bool
	// used is when it was last written.
	used time.Time
}

// writer keeps the Site's ledger as the cells are. It belongs to the goroutine in Run, and then to Close.
type writer struct {
	js        jetstream.JetStream
	committer *stream.Committer
	// epoch of the bucket, as it was when it was looked at.
	epoch  string
	looked time.Time
	// entries are this gateway's entries as the ledger has them, other incarnations included.
	entries map[string]*known
	mu      sync.Mutex // for what known says of revisions
	// gathered is when what datagrams changed was last written.
	gathered time.Time
	// ended are the days of ended incarnations that are still to be written.
	ended []dayKey
}

// Run writes the totals to the Site's ledger each second in which they changed, or as Config.Gather says, those of ended incarnations once,
// until ctx ends. If JetStream is away it keeps trying. It is called once.
func (l *Ledger) Run(ctx context.Context, js jetstream.JetStream) error {
	committer, err := stream.NewCommitter(js.Conn(), stream.CommitterConfig{Stream: "KV_" + wire.LedgerBucket(l.cfg.Site)})
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	w := &l.writer
	w.js, w.committer = js, committer
	w.entries = map[string]*known{}
	var said error
	for ctx.Err() == nil {
		begun := time.Now()
		err := errors.Join(l.counters.sync(), l.write(ctx), l.prune(begun))
		l.forget(begun)
		if (err == nil) != (said == nil) && ctx.Err() == nil {
			if err != nil {
				l.log.Warn("the ledger cannot be written: totals are kept and written later", "error", err)
			} else {
				l.log.Info("the ledger is written again")
			}
			said = err
		}
		retry.Sleep(ctx, max(l.cfg.writeEvery, min(pauseFactor*time.Since(begun), maxPause)))
	}
	return nil
}

// Close makes the totals final, writes them and closes the files. Call it after Run returned; nothing may be counted any
// more. An error says that the Site's ledger does not have all of it: the next incarnation writes it.
func (l *Ledger) Close(ctx context.Context) error {
	defer l.counters.close()
	l.mu.RLock()
	var slots []*slot
	for _, c := range l.cells {
		slots = append(slots, c.slot)
	}
	totals := finalTotals(slots, l.counters.causes)
	l.mu.RUnlock()
	// Until they are written, no ledger has all of them: a kill from here on leaves them to the next incarnation.
	if err := l.ended.put(totals, endsIn(l.counters.head), false); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	if err := durable.Remove(l.path); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	l.mu.Lock()
	clear(l.cells)
	l.mu.Unlock()
	if err := l.writeFinal(ctx, totals); err != nil {
		return fmt.Errorf("write the last counts to the ledger (the next incarnation will write them): %w", err)
	}
	return nil
}

func (l *Ledger) writeFinal(ctx context.Context, totals map[dayKey]wire.Totals) error {
	w := &l.writer
	if w.committer == nil {
		return errors.New("closed before it ran")
	}
	for k := range totals {
		w.ended = append(w.ended, k)
	}
	for len(w.ended) > 0 {
		if err := l.write(ctx); err != nil {
			return errors.Join(err, w.committer.Close(ctx))
		}
	}
	return w.committer.Close(ctx)
}

// checkEpoch has all totals written once more if the bucket was recreated: the one that held them is lost. At the start it
// asks which bucket has the totals of ended incarnations.
func (l *Ledger) checkEpoch(ctx context.Context) error {
	w := &l.writer
	if !w.js.Conn().IsConnected() {
		return nats.ErrDisconnected
	}
	if time.Since(w.looked) < lookEvery {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	epoch, _, err := stream.Epoch(ctx, w.js, "KV_"+wire.LedgerBucket(l.cfg.Site))
	if err != nil {
		return err
	}
	if w.epoch != "" && w.epoch != epoch {
		l.log.Warn("the ledger was created again; writing all totals again")
		w.mu.Lock()
		for _, e := range w.entries {
			e.outdated = true
		}
		w.mu.Unlock()
		l.mu.RLock()
		for _, c := range l.cells {
			c.dirty.Store(true)
		}
		l.mu.RUnlock()
	}
	if w.epoch != epoch && l.ended.written() != epoch {
		w.ended = l.ended.known()
	}
	w.epoch, w.looked = epoch, time.Now()
	return nil
}

// maxConflicts is how often a write that another pod came before is tried again at once.
const maxConflicts = 5

// write puts the totals of all cells that changed, and of ended incarnations as many as are written in one pass.
func (l *Ledger) write(ctx context.Context) error {
	if err := l.checkEpoch(ctx); err != nil {
		return err
	}
	for try := 1; ; try++ {
		if err := l.writeChanged(ctx); !errors.Is(err, stream.ErrConflict) || try == maxConflicts {
			return err
		}
	}
}

func (l *Ledger) writeChanged(ctx context.Context) error {
	w := &l.writer
	due := time.Since(w.gathered) >= l.cfg.Gather
	if due {
		w.gathered = time.Now()
	}
	l.mu.RLock()
	var changed []*cell
	for _, c := range l.cells {
		if dirty := c.dirty.Swap(false); due && c.datagrams.Swap(false) || dirty {
			changed = append(changed, c)
		}
	}
	causes := l.counters.causes
	l.mu.RUnlock()
	p := l.newPuts(ctx)
	for _, c := range changed {
		totals := c.totals(causes)
		p.put(c, c.dayKey, &totals)
	}
	now := w.ended[:min(len(w.ended), endedAtOnce)]
	for _, k := range now {
		p.put(nil, k, nil)
	}
	if err := p.wait(); err != nil {
		return err
	}
	if w.ended = w.ended[len(now):]; len(now) > 0 && len(w.ended) == 0 {
		return l.ended.setWritten(w.epoch)
	}
	return nil
}

// entry returns this gateway's entry of a day, empty if there is none.
func (l *Ledger) entry(ctx context.Context, key string) (*known, error) {
	w := &l.writer
	before := w.entries[key]
	w.mu.Lock()
	valid := before != nil && !before.outdated
	w.mu.Unlock()
	if valid {
		return before, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	e := &known{}
	var err error
	e.value, e.revision, err = stream.Newest(ctx, w.js, wire.LedgerBucket(l.cfg.Site), key)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
	case err != nil:
		return nil, fmt.Errorf("ledger entry %s: %w", key, err)
	default:
		if e.LedgerEntry, err = wire.Decode[wire.LedgerEntry](e.value); err != nil {
			return nil, fmt.Errorf("ledger entry %s: %w", key, err)
		}
	}
	if e.Incarnations == nil {
		e.Incarnations = map[string]wire.Totals{}
	}
	if before != nil { // what a recreated bucket no longer has
		for incarnation, t := range before.Incarnations {
			if _, has := e.Incarnations[incarnation]; !has {
				e.Incarnations[incarnation] = t
			}
		}
	}
	w.entries[key] = e
	return e, nil
}

// forget drops what the bucket has of days of instruments of other Sites that were not written for a while.
func (l *Ledger) forget(at time.Time) {
	maps.DeleteFunc(l.writer.entries, func(key string, e *known) bool {
		instrument, _, _ := strings.Cut(key, ".")
		return wire.IsGuest(instrument) && at.Sub(e.used) > l.cfg.keepEntries
	})
}

// prune drops cells of days that are over, once they are written and no longer counted in: what they count is on the volume
// first. Those of instruments of other Sites stay: a mirror brings thousands of days, and a cell takes less memory (850 bytes,
// most of them in the file) than an entry of an ended incarnation. Their totals in the bucket are read again when needed.
func (l *Ledger) prune(at time.Time) error {
	now := at.Unix()
	keep := int64(keepCells / time.Second)
	l.mu.Lock()
	defer l.mu.Unlock()
	old := map[cellKey]*cell{}
	totals := map[dayKey]wire.Totals{}
	for key, c := range l.cells {
		if now-(key.day+1)*secondsPerDay < keep || now-c.touched.Load() < keep || c.dirty.Load() || c.datagrams.Load() || wire.IsGuest(key.instrument) {
			continue
		}
		old[key], totals[c.dayKey] = c, c.totals(l.counters.causes)
	}
	if len(old) == 0 {
		return nil
	}
	if err := l.ended.put(totals, nil, true); err != nil {
		return err
	}
	for key, c := range old {
		delete(l.cells, key)
		delete(l.writer.entries, c.entry(l.cfg.Gateway))
		l.counters.release(c.slot)
	}
	return nil
}
