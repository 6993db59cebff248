// SPDX-License-Identifier: Apache-2.0

package dayclose

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// restores is how many entries are put back at once.
const restores = 32

// restore brings what closed days hold back into a bucket that was recreated: only then do readers
// see it, and does a day's next version replace those before. Days of the ledger that were not
// closed are counted again. A try that was cut short is repeated.
func (k *kind) restore(ctx context.Context, kv jetstream.KeyValue) error {
	closed := map[wire.Day]bool{}
	for name, err := range k.cfg.Store.Folders(ctx, wire.DayFilesPrefix(k.kind, k.cfg.Site)) {
		if err != nil {
			return err
		}
		day, err := wire.ParseDay(name)
		if err != nil {
			k.cfg.Log.Warn("ignoring an unknown folder among closed days", "kind", k.kind, "folder", name)
			continue
		}
		if closed[day], err = k.restoreDay(ctx, kv, day); err != nil {
			return fmt.Errorf("bring back %s of %s: %w", k.kind, day, err)
		}
	}
	if k.kind != wire.KindLedger {
		return nil
	}
	return k.recount(ctx, kv, closed)
}

// restoreDay says whether the day has a version that can be read.
func (k *kind) restoreDay(ctx context.Context, kv jetstream.KeyValue, day wire.Day) (bool, error) {
	last, _, err := k.lastVersion(ctx, day)
	if err != nil {
		return false, err
	}
	newest, err := k.readNewest(ctx, day, last)
	if err != nil || newest.Header.Version == 0 {
		return false, err
	}
	there := map[string]bool{}
	err = stream.Entries(ctx, k.cfg.JetStream, kv, k.kind.EntriesOf(day), func(e jetstream.KeyValueEntry) error {
		there[e.Key()] = true
		return nil
	})
	if err != nil {
		return false, err
	}
	if err := k.cfg.Lease.Check(); err != nil {
		return false, err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(restores)
	for _, e := range newest.Entries {
		if k.confirmedAnew(e.Key) {
			continue
		}
		group.Go(func() error { return k.putBack(groupCtx, kv, e, there[e.Key]) })
	}
	return true, group.Wait()
}

// confirmedAnew says whether an entry is what a reader that pulls had confirmed. It may have lost that since, and says again what it has: the
// root of the mirror index names the ledger.
func (k *kind) confirmedAnew(key string) bool {
	if k.kind != wire.KindLedger {
		return false
	}
	_, _, step, _, err := wire.ParseLedgerKey(key)
	return err == nil && step == wire.StepPulled
}

// readNewest reads the newest version of a day that can be read, up to a number; where none
// can, the file has no version.
func (k *kind) readNewest(ctx context.Context, day wire.Day, number int) (wire.DayFile, error) {
	for ; number > 0; number-- {
		f, err := k.version(ctx, day, number)
		switch {
		case errors.Is(err, wire.ErrMalformed):
			k.cfg.Log.Error("cannot read a closed day; using the version before it", "kind", k.kind, "day", day, "version", number, "error", err)
		case !errors.Is(err, objectstore.ErrNotFound):
			return f, err
		}
	}
	return wire.DayFile{}, nil
}

func (k *kind) version(ctx context.Context, day wire.Day, number int) (wire.DayFile, error) {
	body, _, err := k.cfg.Store.Get(ctx, wire.DayFileKey(k.kind, k.cfg.Site, day, number), objectstore.All)
	if err != nil {
		return wire.DayFile{}, err
	}
	defer body.Close()
	return wire.DecodeDayFile(body)
}

// putBack adds an entry of a closed day to what the bucket holds under its key, if anything.
func (k *kind) putBack(ctx context.Context, kv jetstream.KeyValue, e wire.DayEntry, there bool) error {
	for ; ; there = true {
		if !there {
			if _, err := kv.Create(ctx, e.Key, rawValue(e.Value)); !errors.Is(err, jetstream.ErrKeyExists) {
				return err
			}
		}
		stored, revision, err := stream.Newest(ctx, k.cfg.JetStream, k.bucket(), e.Key)
		if err != nil {
			return err
		}
		value, more := k.mergeClosed(e, stored)
		if !more {
			return nil
		}
		if _, err = kv.Update(ctx, e.Key, value, revision); !errors.Is(err, jetstream.ErrKeyRevisionMismatch) { // else its writer was there first
			return err
		}
	}
}

// rawValue is an entry as the bucket had it: what could not be read was kept as text.
func rawValue(value json.RawMessage) []byte {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return []byte(text)
	}
	return value
}

// mergeClosed returns what an entry is with the incarnations of a closed day that it lacks, and whether there are any. The
// counts of an incarnation are always its full totals, so an entry that has the incarnation is newer, even if its
// totals are lower: a duplicate may be none any more. Other entries than the ledger's counts are newer as they are.
func (k *kind) mergeClosed(e wire.DayEntry, stored []byte) (value []byte, more bool) {
	if k.kind != wire.KindLedger {
		return nil, false
	}
	if _, _, step, _, err := wire.ParseLedgerKey(e.Key); err != nil || step == wire.StepDamaged {
		return nil, false
	}
	closed, err := wire.Decode[wire.LedgerEntry](e.Value)
	now, errNow := wire.Decode[wire.LedgerEntry](stored)
	if err != nil || errNow != nil {
		k.cfg.Log.Error("an entry cannot be read and is left as it is", "bucket", k.bucket(), "entry", e.Key, "error", errors.Join(err, errNow))
		return nil, false
	}
	sums := maps.Clone(now.Incarnations)
	if sums == nil {
		sums = map[string]wire.Totals{}
	}
	for incarnation, before := range closed.Incarnations {
		if _, has := sums[incarnation]; !has {
			sums[incarnation], more = before, true
		}
	}
	if !more {
		return nil, false
	}
	now.Incarnations = sums
	value, err = wire.Encode(now)
	return value, err == nil
}
