// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// putsAtOnce bounds the parts that are on their way to the store at one time.
const putsAtOnce = 8

// close closes the open parts and finishes what follows from them. The order
// makes a kill at any point harmless: parts, withdrawals, what is to be removed,
// ledger, index, and last the cursor, without which the next writer does it all again.
func (w *Writer) close(ctx context.Context) error {
	w.nextClose = time.Now().Add(w.cfg.PartInterval)
	if err := w.cfg.Lease.Check(); err != nil {
		return err
	}
	if err := w.writeParts(ctx); err != nil {
		return err
	}
	if err := w.withdrawAll(ctx); err != nil {
		return err
	}
	if err := w.saveRemovals(ctx); err != nil {
		return err
	}
	if err := w.saveRepeats(ctx); err != nil {
		return err
	}
	w.tellRefusals(ctx)
	w.cfg.Index.Flush(ctx, wire.StreamCursor{Epoch: w.cursor.Epoch, Next: w.next})
	if w.next != w.cursor.Next {
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
	w.open, w.loose, w.squeezed, w.changes = 0, 0, 0, 0
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
		Writer: w.cfg.Gateway, Incarnation: w.cfg.Incarnation}
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
	}
	w.cfg.Index.Part(ctx, d.instrument, d.day, d.nextPart, open)
	d.nextPart++
	d.open.clear()
	d.changes = d.changes[:0]
	return nil
}

// compare tells a part that an earlier try of ours wrote, whose answer was lost,
// from one of another writer.
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
	same := m.Header.Writer == w.cfg.Gateway && m.Header.Incarnation == w.cfg.Incarnation &&
		slices.EqualFunc(m.Records, records, func(a, b wire.Record) bool { return a.ID == b.ID && a.State == b.State })
	if !same {
		return fmt.Errorf("%s was written by %s, incarnation %s: %w", key, m.Header.Writer, m.Header.Incarnation, ErrFenced)
	}
	return nil
}

// withdrawAll takes back the repeats that closed parts list.
func (w *Writer) withdrawAll(ctx context.Context) error {
	cfg := withdrawConfig{js: w.cfg.JetStream, store: w.cfg.Store, lease: w.cfg.Lease, gateway: w.cfg.Gateway, log: w.cfg.Log,
		originals: w.originals}
	for _, n := range w.withdrawals {
		err := withdraw(ctx, cfg, n)
		var refused *jetstream.APIError
		if errors.As(err, &refused) {
			// A full stream must not hold up the cursor, which is what lets it be trimmed.
			w.cfg.Log.Warn("a repeat is left to the sweep", "instrument", n.Instrument, "object", n.ID, "error", err)
			continue
		}
		if err != nil {
			return err
		}
	}
	w.withdrawals = w.withdrawals[:0]
	return nil
}

// saveRepeats writes the ledger's column of repeats where it changed: absolute
// totals of what the day's manifest lists as withdrawn.
func (w *Writer) saveRepeats(ctx context.Context) error {
	for _, d := range w.days {
		if !d.unsaved {
			continue
		}
		if err := w.cfg.Lease.Check(); err != nil {
			return err
		}
		entry := wire.LedgerEntry{Incarnations: map[string]wire.Totals{ledgerIncarnation: d.repeats}}
		value, err := entry.Encode()
		if err != nil {
			return err
		}
		key := wire.LedgerKey(d.instrument, d.day, wire.StepRepeated, wire.ArchivistWriter)
		if _, err := w.ledger.Put(ctx, key, value); err != nil {
			return fmt.Errorf("write %s of the ledger: %w", key, err)
		}
		d.unsaved = false
	}
	return nil
}

// ledgerIncarnation stands for all lives of the manifest's writer: the totals are
// those of the manifest, not of a process.
const ledgerIncarnation = "manifest"

func (w *Writer) moveCursor(ctx context.Context, next uint64) error {
	if err := w.cfg.Lease.Check(); err != nil {
		return err
	}
	moved := w.cursor
	moved.Next = next
	value, err := moved.Encode()
	if err != nil {
		return err
	}
	if err := w.cell.Store(ctx, value); err != nil {
		return err
	}
	w.cursor = moved
	w.listed.Store(&stream.Position{Epoch: moved.Epoch, Next: next})
	return nil
}
