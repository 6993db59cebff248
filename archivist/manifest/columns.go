// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"encoding/binary"
	"fmt"

	"golang.org/x/sync/errgroup"

	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// maxDuplicates objects of a day are remembered at a time while its lines are counted, of some
// 40 bytes each.
const maxDuplicates = 1 << 17

// lineTally counts the lines of a day for the ledger, each object once, without remembering all
// of them. The compacted day has one line for each object. In the parts after it an object's
// first line says Current, or Duplicate where it duplicates another: only of those
// must be found out whether they have another line. They are remembered max at a time.
type lineTally struct {
	read.Columns
	max int

	// lines is how many of the parts say Duplicate. duplicates are the objects that do, or a share
	// of them; the value is whether another line was found. Sums counts them.
	lines      int
	duplicates map[read.IDHash]bool
	sums       read.Columns
}

// compacted counts a line of the compacted day.
func (t *lineTally) compacted(r *wire.Record, _ read.IDHash) { t.object(r) }

func (t *lineTally) object(r *wire.Record) {
	if r.Segment == nil { // the cutter counts datagrams
		t.Add(r)
	}
}

// part counts a line of a part.
func (t *lineTally) part(r *wire.Record, id read.IDHash) {
	switch {
	case r.State == wire.StateDuplicate:
		if t.lines++; t.lines <= t.max {
			t.markDuplicate(*r, id)
		} else {
			t.begin() // finish takes them share by share
		}
	case r.State == wire.StateCurrent && r.RestoredAt == nil:
		t.object(r)
	}
}

func (t *lineTally) begin() { t.duplicates, t.sums = nil, read.Columns{} }

// markDuplicate counts an object that is listed as a duplicate, as if no other line listed it.
func (t *lineTally) markDuplicate(r wire.Record, id read.IDHash) {
	if _, again := t.duplicates[id]; again {
		return
	}
	if t.duplicates == nil {
		t.duplicates = map[read.IDHash]bool{}
	}
	t.duplicates[id] = false
	r.State = wire.StateCurrent
	t.sums.Add(&r)
	t.sums.MarkDuplicate(&r)
}

// finish counts the duplicates of the parts: all that is remembered, or else each share of it.
func (t *lineTally) finish(ctx context.Context, store objectstore.Store, files read.Files) error {
	if t.lines <= t.max {
		return t.compare(ctx, store, files)
	}
	_, parts := files.Split()
	shares := (t.lines + t.max - 1) / t.max
	for share := range shares {
		t.begin()
		for r, err := range parts.Lines(ctx, store) {
			if err != nil {
				return err
			}
			id := read.HashID(r.ID)
			if r.State == wire.StateDuplicate && int(binary.BigEndian.Uint32(id[:]))%shares == share {
				t.markDuplicate(r, id)
			}
		}
		if err := t.compare(ctx, store, files); err != nil {
			return err
		}
	}
	return nil
}

// compare takes out what other lines count too of what is remembered, and adds the rest.
func (t *lineTally) compare(ctx context.Context, store objectstore.Store, files read.Files) error {
	if len(t.duplicates) == 0 {
		return nil
	}
	for r, err := range files.Lines(ctx, store) {
		if err != nil {
			return err
		}
		if r.State == wire.StateDuplicate {
			continue
		}
		id := read.HashID(r.ID)
		if counted, marked := t.duplicates[id]; marked && !counted {
			t.duplicates[id] = true
			t.sums.Drop(&r)
		}
	}
	t.Plus(t.sums)
	t.begin()
	return nil
}

// columnsAtOnce bounds the ledger's columns that are on their way to JetStream at one time.
const columnsAtOnce = 64

// saveColumns writes the ledger's columns of announced objects and duplicates where they
// changed: absolute totals of what the day's manifest lists.
func (w *Writer) saveColumns(ctx context.Context) error {
	if err := w.lookForLedger(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(columnsAtOnce)
	for _, d := range w.days {
		if d.unsaved && !d.setAside {
			group.Go(func() error { return w.saveDay(ctx, d) })
		}
	}
	return group.Wait()
}

// lookForLedger has the columns of all days in memory written once more if the ledger was
// recreated. The closer restores the other days, see closing.
func (w *Writer) lookForLedger(ctx context.Context) error {
	epoch, _, err := stream.Epoch(ctx, w.cfg.JetStream, "KV_"+wire.LedgerBucket(w.cfg.Site))
	if err != nil {
		return err
	}
	if w.ledgerEpoch != "" && w.ledgerEpoch != epoch {
		for _, d := range w.days {
			d.unsaved = len(d.columns.Announced) > 0
		}
	}
	w.ledgerEpoch = epoch
	return nil
}

// saveDay may run beside those of other days.
func (w *Writer) saveDay(ctx context.Context, d *day) error {
	if err := w.saveColumn(ctx, d, wire.StepAnnounced, d.columns.Announced); err != nil {
		return err
	}
	if d.duplicated = d.duplicated || d.columns.Duplicates.Objects > 0; d.duplicated {
		duplicates := map[string]wire.Totals{ledgerIncarnation: d.columns.Duplicates}
		if err := w.saveColumn(ctx, d, wire.StepDuplicates, duplicates); err != nil {
			return err
		}
	}
	d.unsaved = false
	return nil
}

func (w *Writer) saveColumn(ctx context.Context, d *day, step wire.Step, of map[string]wire.Totals) error {
	if err := w.cfg.Lease.Check(); err != nil {
		return err
	}
	value, err := wire.Encode(wire.LedgerEntry{Incarnations: of})
	if err != nil {
		return err
	}
	key := wire.LedgerKey(d.instrument, d.day, step, wire.ArchivistWriter)
	if _, err := w.ledger.Put(ctx, key, value); err != nil {
		return fmt.Errorf("write %s of the ledger: %w", key, err)
	}
	return nil
}

// ledgerIncarnation stands for all incarnations of the manifest's writer in the column of duplicates: the
// totals count the manifest, not a process.
const ledgerIncarnation = "manifest"
