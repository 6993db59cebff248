// SPDX-License-Identifier: Apache-2.0

package closing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// manifestLife stands in the place of a life for what is no process's: see the manifest's
// writer, which writes such columns itself.
const manifestLife = "manifest"

// recount brings days back into a ledger that was made anew which were never closed: what
// was counted of them was in the lost bucket alone. What came, the manifests say; how
// much of it was acknowledged or unfinished, and datagrams before they were in segments,
// nobody knows any more but a gateway that lives on.
func (k *kind) recount(ctx context.Context, kv jetstream.KeyValue, closed map[wire.Day]bool) error {
	for instrument, err := range manifest.Instruments(ctx, k.cfg.Store, k.cfg.Site) {
		if err != nil {
			return err
		}
		for day, err := range manifest.Days(ctx, k.cfg.Store, k.cfg.Site, instrument) {
			if err != nil {
				return err
			}
			if _, err := wire.ParseDay(string(day)); err != nil || closed[day] {
				continue
			}
			if err := k.recountDay(ctx, kv, instrument, day); err != nil {
				return fmt.Errorf("count %s of instrument %s anew: %w", day, instrument, err)
			}
		}
	}
	return nil
}

func (k *kind) recountDay(ctx context.Context, kv jetstream.KeyValue, instrument string, day wire.Day) error {
	listed := columns{}
	for r, err := range manifest.Records(ctx, k.cfg.Store, k.cfg.Site, instrument, day) {
		if errors.Is(err, wire.ErrMalformed) || errors.Is(err, objectstore.ErrNotFound) {
			k.cfg.Log.Error("a manifest cannot be read: the ledger of its day, which was lost, lacks what it lists", "instrument", instrument, "day", day, "error", err)
			break
		}
		if err != nil {
			return err
		}
		listed.count(&r)
	}
	counted, err := k.counted(ctx, kv, instrument, day)
	if err != nil {
		return err
	}
	for step, writers := range listed {
		if covered(counted[step], writers.sum()) {
			continue // by whichever gateway: one may have brought home what another received
		}
		for writer, lives := range writers {
			if err := k.cfg.Lease.Check(); err != nil {
				return err
			}
			if err := k.raise(ctx, kv, wire.LedgerKey(instrument, day, step, writer), lives); err != nil {
				return err
			}
		}
	}
	return nil
}

// counted is what the bucket says of a day's steps, all writers together.
func (k *kind) counted(ctx context.Context, kv jetstream.KeyValue, instrument string, day wire.Day) (map[wire.Step]wire.Totals, error) {
	sums := map[wire.Step]wire.Totals{}
	err := stream.Entries(ctx, kv, wire.LedgerKey(instrument, day, "*", "*"), func(e jetstream.KeyValueEntry) error {
		_, _, step, _, err := wire.ParseLedgerKey(e.Key())
		if err != nil {
			return nil // an entry of nothing
		}
		entry, err := wire.DecodeLedgerEntry(e.Value())
		if errors.Is(err, wire.ErrMalformed) {
			return nil // raise says so
		}
		sums[step] = sums[step].Plus(entry.Sum())
		return err
	})
	return sums, err
}

// covered says whether as much was counted as is listed.
func covered(has, listed wire.Totals) bool {
	return has.Objects >= listed.Objects && has.Datagrams >= listed.Datagrams
}

// columns are totals by step, writer, and the writer's life.
type columns map[wire.Step]writers

type writers map[string]map[string]wire.Totals

func (w writers) sum() wire.Totals {
	var sum wire.Totals
	for _, lives := range w {
		sum = sum.Plus(wire.LedgerEntry{Incarnations: lives}.Sum())
	}
	return sum
}

// count counts an object as its gateway did, and a segment as who cut it.
func (c columns) count(r *wire.Record) {
	add := func(step wire.Step, writer, life string, t wire.Totals) {
		if c[step] == nil {
			c[step] = writers{}
		}
		if c[step][writer] == nil {
			c[step][writer] = map[string]wire.Totals{}
		}
		c[step][writer][life] = c[step][writer][life].Plus(t)
	}
	if s := r.Segment; s != nil {
		t := wire.Totals{Datagrams: s.Datagrams, DatagramBytes: s.DatagramBytes}
		if s.Undecodable > 0 {
			t.Dropped = map[wire.Cause]uint64{wire.CauseUndecodable: s.Undecodable}
		}
		add(wire.StepStored, wire.ArchivistWriter, cmp.Or(s.Channel, wire.UnknownChannel), t)
		return
	}
	one := wire.Totals{Objects: 1, ObjectBytes: uint64(r.Size), Digest: r.Digest}
	for _, step := range []wire.Step{wire.StepReceived, wire.StepStored, wire.StepAnnounced} {
		add(step, cmp.Or(r.Gateway, wire.ArchivistWriter), cmp.Or(r.Incarnation, manifestLife), one)
	}
	if r.State == wire.StateWithdrawn {
		add(wire.StepRepeated, wire.ArchivistWriter, manifestLife, one)
	}
}

// raise makes an entry say no less than the manifests list.
func (k *kind) raise(ctx context.Context, kv jetstream.KeyValue, key string, listed map[string]wire.Totals) error {
	for {
		e, err := kv.Get(ctx, key)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			var value []byte
			if value, err = (wire.LedgerEntry{Incarnations: listed}).Encode(); err == nil {
				_, err = kv.Create(ctx, key, value)
			}
		case err == nil:
			value, more := k.raised(key, e.Value(), listed)
			if !more {
				return nil
			}
			_, err = kv.Update(ctx, key, value, e.Revision())
		}
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, jetstream.ErrKeyExists) && !errors.Is(err, jetstream.ErrKeyRevisionMismatch):
			return fmt.Errorf("entry %s: %w", key, err)
		}
	}
}

// raised returns an entry that its writer wrote since, with the lives that it does not
// know any more. One that counts as much has none.
func (k *kind) raised(key string, is []byte, listed map[string]wire.Totals) (value []byte, more bool) {
	now, err := wire.DecodeLedgerEntry(is)
	if err != nil {
		k.cfg.Log.Error("an entry cannot be read and is left as it is", "bucket", k.bucket(), "entry", key, "error", err)
		return nil, false
	}
	if covered(now.Sum(), wire.LedgerEntry{Incarnations: listed}.Sum()) {
		return nil, false
	}
	lives := maps.Clone(now.Incarnations)
	if lives == nil {
		lives = map[string]wire.Totals{}
	}
	for life, t := range listed {
		was := lives[life]
		if was.Objects < t.Objects {
			was.Objects, was.ObjectBytes, was.Digest = t.Objects, t.ObjectBytes, t.Digest
			more = true
		}
		if was.Datagrams < t.Datagrams {
			was.Datagrams, was.DatagramBytes, was.Dropped = t.Datagrams, t.DatagramBytes, t.Dropped
			more = true
		}
		lives[life] = was
	}
	now.Incarnations = lives
	value, err = now.Encode()
	return value, more && err == nil
}
