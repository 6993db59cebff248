// SPDX-License-Identifier: Apache-2.0

package dayclose

import (
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

// recount brings days that were never closed back into a ledger that was rebuilt: their counts were in
// the lost bucket alone. The manifests say what was announced and stored; each gateway that still has
// its volume writes again what was received.
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
				return fmt.Errorf("recount %s of instrument %s: %w", day, instrument, err)
			}
		}
	}
	return nil
}

func (k *kind) recountDay(ctx context.Context, kv jetstream.KeyValue, instrument string, day wire.Day) error {
	var listed manifest.Columns
	for r, err := range manifest.Records(ctx, k.cfg.Store, k.cfg.Site, instrument, day) {
		if errors.Is(err, wire.ErrMalformed) || errors.Is(err, objectstore.ErrNotFound) {
			k.cfg.Log.Error("cannot read a manifest: the ledger of its day was lost, and is recounted without what the manifest lists", "instrument", instrument, "day", day, "error", err)
			break
		}
		if err != nil {
			return err
		}
		listed.Add(&r)
	}
	for step, totals := range map[wire.Step]map[string]wire.Totals{
		wire.StepAnnounced: listed.Announced, wire.StepStored: listed.Stored, wire.StepDuplicates: {manifestIncarnation: listed.Duplicates},
	} {
		if err := k.cfg.Lease.Check(); err != nil {
			return err
		}
		if err := k.raise(ctx, kv, wire.LedgerKey(instrument, day, step, wire.ArchivistWriter), totals); err != nil {
			return err
		}
	}
	return nil
}

// manifestIncarnation stands in the place of an incarnation in the column of duplicates, as the manifest's writer
// writes it.
const manifestIncarnation = "manifest"

// covered says whether as much was counted as is listed.
func covered(has, listed wire.Totals) bool {
	return has.Objects >= listed.Objects && has.Datagrams >= listed.Datagrams
}

// raise makes an entry say no less than the manifests list.
func (k *kind) raise(ctx context.Context, kv jetstream.KeyValue, key string, listed map[string]wire.Totals) error {
	if covered(wire.Totals{}, wire.LedgerEntry{Incarnations: listed}.Sum()) {
		return nil
	}
	for {
		stored, revision, err := stream.Newest(ctx, k.cfg.JetStream, k.bucket(), key)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			var value []byte
			if value, err = wire.Encode((wire.LedgerEntry{Incarnations: listed})); err == nil {
				_, err = kv.Create(ctx, key, value)
			}
		case err == nil:
			value, more := k.mergeListed(key, stored, listed)
			if !more {
				return nil
			}
			_, err = kv.Update(ctx, key, value, revision)
		}
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, jetstream.ErrKeyExists) && !errors.Is(err, jetstream.ErrKeyRevisionMismatch):
			return fmt.Errorf("entry %s: %w", key, err)
		}
	}
}

// mergeListed returns an entry that its writer wrote since, with the incarnations that it does not
// know any more. One that counts as much has none.
func (k *kind) mergeListed(key string, stored []byte, listed map[string]wire.Totals) (value []byte, more bool) {
	now, err := wire.Decode[wire.LedgerEntry](stored)
	if err != nil {
		k.cfg.Log.Error("an entry cannot be read and is left as it is", "bucket", k.bucket(), "entry", key, "error", err)
		return nil, false
	}
	if covered(now.Sum(), wire.LedgerEntry{Incarnations: listed}.Sum()) {
		return nil, false
	}
	incarnations := maps.Clone(now.Incarnations)
	if incarnations == nil {
		incarnations = map[string]wire.Totals{}
	}
	for incarnation, t := range listed {
		counted := incarnations[incarnation]
		if counted.Objects < t.Objects {
			counted.Objects, counted.ObjectBytes, counted.Digest = t.Objects, t.ObjectBytes, t.Digest
			more = true
		}
		if counted.Datagrams < t.Datagrams {
			counted.Datagrams, counted.DatagramBytes, counted.Dropped = t.Datagrams, t.DatagramBytes, t.Dropped
			more = true
		}
		incarnations[incarnation] = counted
	}
	now.Incarnations = incarnations
	value, err = wire.Encode(now)
	return value, more && err == nil
}
