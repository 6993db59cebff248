// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/archivist/deletion"
	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// putsAtOnce bounds the parts that are on their way to the store at one time.
const putsAtOnce = 8

// close closes the open parts and finishes what follows from them. The order
// makes a kill at any point harmless: parts, duplicates, what is to be removed,
// ledger, index, what was decided about requests, and last the cursor, without which
// the next writer does it all again.
func (w *Writer) close(ctx context.Context) error {
	w.closedAt = time.Now()
	w.nextClose = w.closedAt.Add(w.cfg.PartInterval)
	if err := w.cfg.Lease.Check(); err != nil {
		return err
	}
	if err := w.reconsider(ctx); err != nil {
		return err
	}
	if err := w.writeParts(ctx); err != nil {
		return err
	}
	if err := w.reloadSetAside(ctx); err != nil {
		return err
	}
	if err := w.removeDuplicates(ctx); err != nil {
		return err
	}
	if err := w.saveRemovals(ctx); err != nil {
		return err
	}
	if err := w.saveColumns(ctx); err != nil {
		return err
	}
	if err := w.superseded.save(ctx); err != nil {
		return err
	}
	w.tellRefusals(ctx)
	w.reportInstruments(ctx)
	w.reportLost(ctx)
	w.cfg.Index.Flush(ctx, wire.StreamCursor{Epoch: w.cursor.Epoch, Next: w.next})
	if err := w.publishDecided(ctx); err != nil {
		return err
	}
	if w.next != w.cursor.Next || w.undecided() != w.cursor.Undecided {
		if err := w.moveCursor(ctx, w.next); err != nil {
			return err
		}
	}
	if w.caughtUp {
		w.cfg.Metrics.closed.SetToCurrentTime()
	}
	return nil
}

func (w *Writer) writeParts(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(putsAtOnce)
	for _, d := range w.days {
		if d.open.len() > 0 {
			group.Go(func() error { return w.writePart(ctx, d) })
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if w.open > 0 {
		w.originals.forget()
	}
	w.open, w.raw, w.compressed, w.changes = 0, 0, 0, 0
	w.closes++
	return nil
}

// writePart closes a day's open part. It may run beside those of other days.
func (w *Writer) writePart(ctx context.Context, d *day) error {
	key := wire.ManifestPartKey(w.cfg.Site, d.instrument, d.day, d.nextPart)
	open, err := d.open.all()
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	header := wire.ManifestHeader{Site: w.cfg.Site, Instrument: d.instrument, Day: d.day,
		Writer: w.cfg.Pod, Incarnation: w.cfg.Incarnation}
	data, err := wire.Manifest{Header: header, Records: open}.Encode()
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	if err := w.cfg.Lease.Check(); err != nil {
		return err
	}
	if err := read.PutChanges(ctx, w.cfg.Store, header, d.nextPart, d.changes); err != nil {
		return err
	}
	if err := w.cfg.Lease.Check(); err != nil {
		return err
	}
	err = w.cfg.Store.Put(ctx, key, bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{
		ContentType: "application/zstd", Digest: sha256.Sum256(data), CreateOnly: true})
	if errors.Is(err, objectstore.ErrExists) {
		err = w.compare(ctx, key, open)
	}
	if err != nil {
		return err
	}
	w.cfg.Metrics.parts.Inc()
	for _, r := range open {
		w.cfg.Metrics.records.WithLabelValues(string(r.State)).Inc()
		if r.Backfill && r.State == wire.StateCurrent {
			w.cfg.Metrics.backfill.WithLabelValues(d.instrument).Inc()
		}
	}
	w.cfg.Index.Part(ctx, d.instrument, d.day, d.nextPart, int64(len(data)), open)
	d.nextPart++
	d.open.clear()
	d.changes = d.changes[:0]
	return nil
}

// compare distinguishes a part that an earlier try of ours wrote, whose answer was lost, from one
// of another writer.
func (w *Writer) compare(ctx context.Context, key string, records []wire.Record) error {
	body, _, err := w.cfg.Store.Get(ctx, key, objectstore.All)
	if err != nil {
		return err
	}
	defer body.Close()
	m, err := wire.DecodeManifest(body)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	same := m.Header.Writer == w.cfg.Pod && m.Header.Incarnation == w.cfg.Incarnation &&
		slices.EqualFunc(m.Records, records, func(a, b wire.Record) bool { return a.ID == b.ID && a.State == b.State })
	if !same {
		return fmt.Errorf("%s was written by %s, incarnation %s: %w", key, m.Header.Writer, m.Header.Incarnation, ErrFenced)
	}
	return nil
}

// removeDuplicates removes the duplicates that closed parts list.
func (w *Writer) removeDuplicates(ctx context.Context) error {
	cfg := duplicateConfig{Base: w.cfg.Base, deleter: w.cfg.Deleter, originals: w.originals, listing: w.listing, removed: w.removed()}
	going := duplicates{deleter: w.cfg.Deleter}
	for _, n := range w.duplicates {
		if err := going.deleteBefore(ctx, n.DuplicateOf); err != nil {
			return err
		}
		goes, err := removeDuplicate(ctx, cfg, n.Notice)
		var refused *jetstream.APIError
		if errors.As(err, &refused) || errors.Is(err, wire.ErrMalformed) {
			// Neither a full stream nor a day that cannot be read must hold up the cursor, which
			// is what lets the stream be trimmed.
			w.cfg.Log.Warn("a duplicate is left to the sweep", "instrument", n.Instrument, "object", n.ID, "error", err)
			continue
		}
		if err != nil {
			return err
		}
		if err := going.add(ctx, goes); err != nil {
			return err
		}
	}
	if err := going.delete(ctx); err != nil {
		return err
	}
	w.duplicates = w.duplicates[:0]
	return nil
}

// duplicates are deleted deletion.Batch at once: each time is a record of the bucket.
type duplicates struct {
	deleter *deletion.Deleter
	objects []deletion.Object
	keys    map[string]bool
}

// deleteBefore deletes what was added, where an object is among it that is asked for next.
func (d *duplicates) deleteBefore(ctx context.Context, id string) error {
	if !d.keys[id] {
		return nil
	}
	return d.delete(ctx)
}

func (d *duplicates) add(ctx context.Context, o *deletion.Object) error {
	if o == nil {
		return nil
	}
	if d.keys == nil {
		d.keys = map[string]bool{}
	}
	d.keys[o.Key] = true
	if d.objects = append(d.objects, *o); len(d.objects) < deletion.Batch {
		return nil
	}
	return d.delete(ctx)
}

func (d *duplicates) delete(ctx context.Context) error {
	_, err := d.deleter.Delete(ctx, time.Now(), d.objects...) // the sweep finds those that stay
	d.objects = d.objects[:0]
	clear(d.keys)
	return err
}

// listing says what is listed of an object.
func (w *Writer) listing(ctx context.Context, n wire.Notice) (listing, error) {
	_, s, err := w.slot(ctx, n.Instrument, n.Record)
	if err != nil {
		return unlisted, err
	}
	return s.ids[read.HashID(n.ID)], nil
}

// storePosition publishes up to where the notices are listed, and the requests decided.
func (w *Writer) storePosition() {
	w.listed.Store(&stream.Position{Epoch: w.cursor.Epoch, Next: w.cursor.Next})
	w.answered.Store(cmp.Or(w.cursor.Undecided, w.cursor.Next))
}

func (w *Writer) moveCursor(ctx context.Context, next uint64) error {
	if err := w.cfg.Lease.Check(); err != nil {
		return err
	}
	moved := w.cursor
	moved.Next, moved.Undecided = next, w.undecided()
	value, err := wire.Encode(moved)
	if err != nil {
		return err
	}
	if err := w.cell.Store(ctx, value); err != nil {
		return err
	}
	w.cursor = moved
	w.storePosition()
	return nil
}
