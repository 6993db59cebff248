// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/archivist/damage"
	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// A file of a manifest that cannot be decoded affects its day, and no other. New objects of the day go into
// parts of their own, whose numbers nothing else has; what the file listed is unknown until substorm archive
// rebuild has rebuilt the day. Until then nothing of the day is announced by the sweep, deleted, or
// retracted, and its columns of the ledger stay.

// lookAgainIntervals of parts pass until a day is read again that could not be read.
const lookAgainIntervals = 10

// unreadable are files of manifests that cannot be read: each is logged and reported once.
type unreadable struct {
	js        jetstream.JetStream
	site, pod string
	log       *slog.Logger

	mu   sync.Mutex
	told map[string]bool
}

func newUnreadable(cfg *Config) *unreadable {
	return &unreadable{js: cfg.JetStream, site: cfg.Site, pod: cfg.Pod, log: cfg.Log, told: map[string]bool{}}
}

// tell logs files of a day and reports them as damaged, for the scrub to confirm. It holds
// nothing up: what cannot be reported the scrub finds.
func (u *unreadable) tell(ctx context.Context, of dayKey, files map[string]error) {
	for _, key := range slices.Sorted(maps.Keys(files)) {
		u.mu.Lock()
		told := u.told[key]
		u.told[key] = true
		u.mu.Unlock()
		if told {
			continue
		}
		u.log.Error("cannot read a file of a manifest: new records of its day go into the next part, and what it listed is unknown until substorm archive rebuild has recreated the day",
			"instrument", of.instrument, "day", of.day, "object", key, "error", files[key])
		if err := u.report(ctx, of, key); err != nil {
			u.log.Warn("cannot report an unreadable file of a manifest now: the scrub will find it", "object", key, "error", err)
		}
	}
}

func (u *unreadable) report(ctx context.Context, of dayKey, key string) error {
	start, err := of.day.Start()
	if err != nil {
		return err
	}
	d := wire.DamageOf(of.instrument, wire.Record{ID: key, Key: key, ReceivedAt: start}, wire.DamageDamaged, u.pod, time.Now())
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	return damage.Report(ctx, u.js, u.site, d)
}

// readLines yields what the files of a day list, as far as they can be read. After one that
// cannot, which bad gets, it also yields what the day's changes say: the lines of objects that
// were marked as a duplicate, purged or retracted stand there too. Errors: as read.Files.Lines, but for
// wire.ErrMalformed.
func readLines(ctx context.Context, store objectstore.Store, site string, of dayKey, files read.Files, bad map[string]error) iter.Seq2[wire.Record, error] {
	return func(yield func(wire.Record, error) bool) {
		more := true
		for r, err := range files.Readable(ctx, store, func(key string, err error) { bad[key] = err }) {
			if more = yield(r, err); !more || err != nil {
				return
			}
		}
		if len(bad) == 0 {
			return
		}
		_, err := read.WalkChanges(ctx, store, site, of.instrument, of.day, func(r wire.Record) { more = more && yield(r, nil) })
		if err != nil && more {
			yield(wire.Record{}, err)
		}
	}
}

// readableRecord returns the line that holds of an object, as far as the files of its day can
// be read.
func (w *Writer) readableRecord(ctx context.Context, of dayKey, id string) (r wire.Record, found bool, err error) {
	files, err := read.List(ctx, w.cfg.Store, w.cfg.Site, of.instrument, of.day)
	if err != nil {
		return r, false, err
	}
	bad := map[string]error{}
	for line, err := range readLines(ctx, w.cfg.Store, w.cfg.Site, of, files, bad) {
		switch {
		case err != nil:
			return r, false, err
		case line.ID != id:
		case !found:
			r, found = line, true
		case listingOf(line.State) >= listingOf(r.State):
			line.Key, line.Offset, line.Length = r.Key, r.Offset, r.Length
			r = line
		}
	}
	w.unreadable.tell(ctx, of, bad)
	return r, found, nil
}

// setAside notes that what is known of a day is not all that it lists.
func (w *Writer) setAside(ctx context.Context, d *day, bad map[string]error) {
	if len(bad) == 0 {
		return
	}
	d.setAside = true
	d.unsaved = true // it stays in memory, to be looked at again
	w.unreadable.tell(ctx, d.dayKey, bad)
}

// reloadSetAside reads days again that were set aside: they may have been rebuilt.
func (w *Writer) reloadSetAside(ctx context.Context) error {
	for key, d := range w.days {
		if !d.setAside || time.Since(d.readAt) < lookAgainIntervals*w.cfg.PartInterval || d.open.len() > 0 {
			continue
		}
		w.drop(d)
		again, err := w.loadDay(ctx, key, 0)
		if err != nil {
			return err
		}
		if !again.setAside {
			w.cfg.Log.Info("all files of a manifest can be read again", "instrument", key.instrument, "day", key.day)
		}
	}
	return nil
}

// errUnreadable refuses what needs a day that cannot be read.
var errUnreadable = &refusal{refusedUnreadable, "a file of its day's manifest cannot be read: run substorm archive rebuild, and ask again some minutes later"}
