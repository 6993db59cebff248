// SPDX-License-Identifier: Apache-2.0

// Package manifest writes the manifests: it reads every notice, decides which
// objects are duplicates, and closes the list of each instrument and day part by
// part. One writer works at a time, under a lease; what a writer whose time is
// over still sends is stopped by create-only keys and revisions.
package manifest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/archivist/deletion"
	"github.com/substorm/substorm/archivist/holder"
	dayindex "github.com/substorm/substorm/archivist/index"
	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// ErrFenced: another writer was here although the lease says that there is none. Everything in
// memory may be stale: start over.
var ErrFenced = errors.New("another writer changed the manifest")

const (
	// readBatch notices are fetched at once.
	readBatch = 256
	// readWait is how long a fetch waits for the first notice, and so how long
	// a question of the sweep may wait for its answer.
	readWait = 500 * time.Millisecond
	// finishTimeout bounds how long the last parts may take at a drain.
	finishTimeout = 10 * time.Second
)

// Config says which archivist writes, and what.
type Config struct {
	holder.Base

	// RepeatWindow of an instrument: equal objects that were received this far
	// apart or less are duplicates; 0 where equal objects are real.
	RepeatWindow func(instrument string) time.Duration
	// Known says whether the registry knows an instrument, as it is now. While it does not, it is
	// unknown whether equal objects are real and for how long they are kept, and nothing is marked
	// as a duplicate. Optional: it always does.
	Known func(instrument string) bool
	// Expires says whether an instrument's data is not kept for ever: then an object of an
	// earlier day is no original of a later one, which outlives it. Optional: all is kept.
	Expires func(instrument string) bool
	// Naming of an instrument's published paths; empty where it declares none.
	// Optional.
	Naming func(instrument string) (template, station string)
	// Deleter deletes duplicates.
	Deleter *deletion.Deleter
	// Held says why nothing of an instrument may be retracted, as words for people;
	// empty where it may. Optional: then all may.
	Held func(instrument string) string
	// NoticeRetention: what was received within it is announced again into a notice stream that was
	// recreated; 0 if nothing is.
	NoticeRetention time.Duration
	// PartInterval is how often parts are closed.
	PartInterval time.Duration
	// Memory bounds what is remembered of objects, in bytes.
	Memory int64
	// Index tells readers what is listed. Optional.
	Index *dayindex.Keeper

	Metrics *Metrics
}

// Writer is the manifest's single writer for as long as one lease lasts.
type Writer struct {
	cfg    Config
	limits limits
	reader *stream.Reader
	cell   *stream.Cell
	cursor wire.StreamCursor
	ledger jetstream.KeyValue
	// ledgerEpoch is the epoch of the ledger's bucket.
	ledgerEpoch string
	// cursors is the bucket that the cell is of.
	cursors jetstream.KeyValue
	// next is the first sequence that was not taken yet. The reader may be
	// further: what it returned is not all taken when something fails.
	next     uint64
	caughtUp bool

	days map[dayKey]*day
	// templates by instrument, as Naming last said.
	templates  map[string]template
	unreadable *unreadable
	// held is the space that the identities in days take; uses and closes count
	// uses of slots and closings of parts.
	held         int
	uses, closes uint64

	index     *index
	originals *originals
	named     *named
	// superseded before they were listed.
	superseded superseded
	// open is how many records are in open parts, raw those that are not compressed,
	// compressed the bytes that the others take, and changes how many change objects.
	open, raw, compressed, changes int
	duplicates                     []pendingDuplicate
	// decided waits to be published once the parts are closed that list it.
	decided  []decision
	removals []wire.Removal
	refusals refusals
	clocks   clocks
	contents contents
	// lost are originals of duplicates that are not in the store.
	lost []wire.Damage
	// coming are the messages that were read and not taken. asked has the listed records of the
	// objects that they request something of; nil until one of them does.
	coming    []stream.Message
	asked     *asked
	nextClose time.Time
	closedAt  time.Time

	// expired are the days that expired and that the index may still know.
	expiredMu sync.Mutex
	expired   []dayKey

	questions chan question
	listed    atomic.Pointer[stream.Position]
	answered  atomic.Uint64
}

// New returns a writer; Run runs it.
func New(cfg Config) *Writer {
	l := limitsOf(cfg.Memory)
	w := &Writer{
		cfg: cfg, limits: l, days: make(map[dayKey]*day), templates: make(map[string]template), closes: 1,
		index: newIndex(cfg.Site, l.index, cfg.Metrics), questions: make(chan question),
		originals: newOriginals(cfg.JetStream, cfg.Store, l.ids/4), named: newNamed(),
	}
	w.originals.open = w.openPlace
	w.superseded.metrics = cfg.Metrics
	w.unreadable = newUnreadable(&w.cfg)
	return w
}

// Listed returns the first place of the notice stream that is not yet in a
// closed part; the zero value before that is known.
func (w *Writer) Listed() stream.Position {
	if p := w.listed.Load(); p != nil {
		return *p
	}
	return stream.Position{}
}

// Answered returns the first place of the notice stream that may hold a request whose decision is
// not published; 0 before that is known.
func (w *Writer) Answered() uint64 { return w.answered.Load() }

// Run writes until ctx ends, and then closes what is open, or until an error prevents it from
// continuing. The next writer begins where the last closed part ends. A file of a manifest that
// cannot be decoded ends nothing, see unreadable. Errors: wire.ErrNewerFormat, ErrFenced,
// stream.ErrEpoch, stream.ErrLeaseLost, and what keeps JetStream or the store from answering.
func (w *Writer) Run(ctx context.Context) error {
	epoch, err := w.refill(ctx)
	if err != nil {
		return err
	}
	if err := w.begin(ctx, epoch); err != nil {
		return err
	}
	for {
		err := w.step(ctx)
		if err == nil {
			continue
		}
		if ctx.Err() == nil {
			return err
		}
		if w.cfg.Lease.Check() != nil {
			return ctx.Err() // another may write already
		}
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
		defer cancel()
		if err := w.close(last); err != nil {
			return err
		}
		return ctx.Err()
	}
}

// begin finds where the last writer of the stream with an epoch stopped.
func (w *Writer) begin(ctx context.Context, epoch string) error {
	site, js := w.cfg.Site, w.cfg.JetStream
	name := wire.NoticeStream(site)
	cursors, err := js.KeyValue(ctx, wire.CursorBucket(site))
	if err != nil {
		return fmt.Errorf("bucket %s: %w", wire.CursorBucket(site), err)
	}
	if w.ledger, err = js.KeyValue(ctx, wire.LedgerBucket(site)); err != nil {
		return fmt.Errorf("bucket %s: %w", wire.LedgerBucket(site), err)
	}
	w.cursors = cursors
	if err := w.superseded.load(ctx, js, cursors); err != nil {
		return err
	}
	w.cell = stream.NewCell(w.cfg.JetStream, cursors, wire.NoticeCursorKey)
	data, err := w.cell.Load(ctx)
	if err != nil {
		return err
	}
	if data != nil {
		if w.cursor, err = wire.Decode[wire.StreamCursor](data); err != nil {
			return fmt.Errorf("cursor %s: %w", wire.NoticeCursorKey, err)
		}
	}
	if w.cursor.Epoch != epoch {
		if data != nil {
			w.cfg.Log.Warn("the notice stream was recreated; reading it from its beginning",
				"stream", name, "epoch", epoch, "before", w.cursor.Epoch)
		}
		w.cursor = wire.StreamCursor{Epoch: epoch, Next: 1}
	}
	w.next = w.cursor.Next
	w.storePosition()
	// The stream also holds gap records of consumers, which are nothing to list.
	w.reader = stream.NewReader(js, stream.ReaderConfig{Stream: name, Epoch: epoch, Subject: wire.NoticeSubjects(site),
		More: []string{wire.RequestSubjects(site)}, Start: cmp.Or(w.cursor.Undecided, w.cursor.Next)})
	w.nextClose = time.Now().Add(w.cfg.PartInterval)
	return w.loadSaid(ctx)
}

// step takes what has come, answers the sweep, and closes parts when it is time.
func (w *Writer) step(ctx context.Context) error {
	wait := min(readWait, max(time.Millisecond, time.Until(w.nextClose)))
	messages, err := w.reader.Next(ctx, readBatch, wait)
	if err != nil {
		return err
	}
	w.forgetExpired()
	if err := w.forgetLost(ctx); err != nil {
		return err
	}
	w.coming, w.asked = messages, nil
	for len(w.coming) > 0 {
		m := w.coming[0]
		w.coming = w.coming[1:]
		if m.Header.Get(wire.HeaderRefilled) != "" {
			continue // it comes from the manifests
		}
		take := w.take
		if strings.HasPrefix(m.Subject, requestPrefix) {
			take = w.takeRequest
		} else if m.Sequence < w.next {
			continue // it is listed, and was read again for the sake of a request before it
		}
		if err := take(ctx, m); err != nil {
			return err
		}
		w.next = max(w.next, m.Sequence+1)
	}
	w.coming, w.asked = nil, nil
	var read uint64
	read, w.caughtUp = w.reader.Position()
	w.next = max(w.next, read)
	w.answer()
	full, err := w.full()
	if err != nil {
		return err
	}
	if !full && time.Now().Before(w.nextClose) {
		return nil
	}
	return w.close(ctx)
}

// take lists one notice.
func (w *Writer) take(ctx context.Context, m stream.Message) error {
	n, err := w.decode(m)
	if errors.Is(err, wire.ErrNewerFormat) {
		return fmt.Errorf("notice %d on %s: %w", m.Sequence, m.Subject, err)
	}
	if err != nil {
		w.cfg.Metrics.refused.Inc()
		w.cfg.Log.Error("a notice is refused: its object will be announced by the sweep, if it exists",
			"subject", m.Subject, "sequence", m.Sequence, "error", err)
		return nil
	}
	if n.IsChange() {
		return w.skipDecided(m, n)
	}
	d, s, err := w.slot(ctx, n.Instrument, n.Record)
	if err != nil {
		return err
	}
	if state := s.ids[read.HashID(n.ID)]; state != unlisted {
		return w.takeListed(ctx, d, state, n)
	}
	if n.State == wire.StateCurrent {
		if err := w.decide(ctx, s, &n); err != nil {
			return err
		}
	}
	early := w.superseded.has(n.ID)
	w.list(d, s, n)
	if n.State != wire.StateCurrent {
		return nil
	}
	if early {
		if _, err := w.supersedeListed(ctx, n, n.ID); err != nil {
			return err
		}
	}
	return w.follow(ctx, n)
}

// takeListed takes a notice of an object that is listed.
func (w *Writer) takeListed(ctx context.Context, d *day, state listing, n wire.Notice) error {
	w.superseded.forgetListed(n.ID)
	switch {
	case n.State != wire.StateCurrent:
		return nil
	case state == duplicate:
		return w.markAgain(ctx, d, n) // what followed the part may not have been finished
	case state == purged:
		w.removals = append(w.removals, storedAgain(dayKey{d.instrument, d.day}, n.ID, n.Key)) // out of a spool, say
		return nil
	default:
		return w.follow(ctx, n) // it may be the notice once more
	}
}

// follow does what follows from an object that is listed.
func (w *Writer) follow(ctx context.Context, n wire.Notice) error {
	if err := w.markNameless(ctx, n); err != nil {
		return err
	}
	return w.supersede(ctx, n)
}

// decode reads a notice and refuses what would not fit into a manifest.
func (w *Writer) decode(m stream.Message) (wire.Notice, error) {
	n, err := wire.Decode[wire.Notice](m.Data)
	if err != nil {
		return wire.Notice{}, err
	}
	if n.Site != w.cfg.Site || m.Subject != n.Subject() {
		return wire.Notice{}, fmt.Errorf("it speaks of instrument %q of site %q: %w", n.Instrument, n.Site, wire.ErrMalformed)
	}
	if err := m.CheckOrigin(n.Site); err != nil {
		return wire.Notice{}, err
	}
	if err := n.CheckPlace(); err != nil {
		return wire.Notice{}, err
	}
	if n.State == wire.StateSuperseded && n.RestoredAt != nil { // an older version, restored
		return n, nil
	}
	if n.State != wire.StateCurrent && n.State != wire.StateDuplicate && n.State != wire.StateRetracted && n.State != wire.StatePurged {
		return wire.Notice{}, fmt.Errorf("state %q: %w", n.State, wire.ErrMalformed)
	}
	_, err = wire.ParseManifestKey(wire.ManifestPartKey(n.Site, n.Instrument, wire.DayOf(n.ReceivedAt), 1))
	return n, err
}

// list adds a record to the open part of its day.
func (w *Writer) list(d *day, s *slot, n wire.Notice) {
	n.Record.ReceivedAt = n.Record.ReceivedAt.UTC()
	told, first := n.Path, s.ids[read.HashID(n.ID)] == unlisted
	if first && n.State == wire.StateCurrent {
		w.publish(d, &n)
	}
	w.superseded.forgetListed(n.ID)
	d.count(&n.Record, first)
	s.ids[read.HashID(n.ID)] = listingOf(n.State)
	s.closes = w.closes
	d.listed[slotOf(n.Record)] = true
	w.held++
	w.add(d, n.Record)
	if n.State != wire.StateCurrent || n.Path != told || !wire.IsOurs(n.Key) || lacksPath(n) {
		w.addChange(d, n.Record)
	}
	w.named.noteListed(n)
	if n.State == wire.StateDuplicate {
		return
	}
	if n.State == wire.StateCurrent && n.Origin == nil {
		w.clocks.note(&n)
		w.contents.note(&n)
	}
	if w.cfg.RepeatWindow(n.Instrument) > 0 {
		w.index.add(n.Instrument, n.Record)
	}
}

// lacksPath says whether the metadata of an object that was pulled from another Site had no space for its path.
func lacksPath(n wire.Notice) bool {
	return n.Origin != nil && n.Path != "" && !n.InPack() && !wire.MetadataFits(n)
}

// add adds a line to the open part of a day.
func (w *Writer) add(d *day, r wire.Record) {
	w.asked.noteLine(d.dayKey, r)
	d.open.raw = append(d.open.raw, r)
	w.open++
	w.raw++
}

// addChange notes a line of the open part that says what its object does not.
func (w *Writer) addChange(d *day, r wire.Record) {
	d.changes = append(d.changes, r)
	w.changes++
}
