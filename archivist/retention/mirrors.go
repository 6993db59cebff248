// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// mirrored returns what partners have of an instrument's day, by partner, as the ledger
// says, and what there is to have. Where nothing is mirrored there are no partners.
func (r *Collector) mirrored(ctx context.Context, b *batch) (has map[string]wire.Totals, all wire.Totals, err error) {
	has = map[string]wire.Totals{}
	var stored, duplicates wire.Totals
	err = stream.EntriesOf(ctx, r.cfg.JetStream, wire.LedgerBucket(r.cfg.Site), wire.LedgerKey(b.instrument, b.day, "*", "*"), func(e jetstream.KeyValueEntry) error {
		_, _, step, writer, err := wire.ParseLedgerKey(e.Key())
		if err != nil {
			return err
		}
		entry, err := wire.Decode[wire.LedgerEntry](e.Value())
		if err != nil {
			return fmt.Errorf("ledger entry %s: %w", e.Key(), err)
		}
		switch step {
		case wire.StepMirrored:
			has[writer] = entry.Sum()
		case wire.StepAnnounced, wire.StepStored: // objects, datagrams
			stored = stored.Plus(entry.Sum())
		case wire.StepDuplicates:
			duplicates = duplicates.Plus(entry.Sum())
		}
		return nil
	})
	stored.Objects -= min(stored.Objects, duplicates.Objects)
	stored.Digest = stored.Digest.Minus(duplicates.Digest)
	return has, stored, err
}

// partner returns how long what is due waits for a partner, and false where it is not declared any more.
func (r *Collector) partner(name string) (hold time.Duration, declared bool) {
	if r.cfg.Partner == nil {
		return math.MaxInt64, true
	}
	return r.cfg.Partner(name)
}

// owed names the partners that have not got all of a day yet and for which it still waits: hold is how long at most, as its Instrument
// says, counted from when the day was found to be due; a partner may say less. As many objects are not the same objects: the sums of
// their digests are compared.
func (r *Collector) owed(ctx context.Context, b *batch, hold time.Duration, now time.Time) ([]string, error) {
	has, all, err := r.mirrored(ctx, b)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(has)), func(partner string) bool {
		is := has[partner]
		if is.Objects >= all.Objects && is.Digest == all.Digest && is.Datagrams >= all.Datagrams {
			return true
		}
		most, declared := r.partner(partner)
		return !declared || now.Sub(b.whole.At) >= min(hold, most)
	}), nil
}

// unconfirmed says for which partners the purges of a batch wait: those that are declared, have something of the day, and have not said
// that they removed it too.
func (r *Collector) unconfirmed(ctx context.Context, b *batch) error {
	if len(b.objects) == 0 {
		return nil // what expires here, partners keep as long as they like
	}
	has, _, err := r.mirrored(ctx, b)
	if err != nil {
		return err
	}
	waiting := map[string]bool{}
	for partner, is := range has {
		if _, declared := r.partner(partner); !declared {
			continue
		}
		for _, o := range b.objects {
			if waiting[partner] || !o.Asks(partner, is) {
				continue
			}
			if _, err := r.kv.Get(ctx, wire.MirrorConfirmedKey(partner, o)); errors.Is(err, jetstream.ErrKeyNotFound) {
				waiting[partner] = true
			} else if err != nil {
				return fmt.Errorf("what partner %s confirmed: %w", partner, err)
			}
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	return &waits{waitMirrors, errors.New(strings.Join(slices.Sorted(maps.Keys(waiting)), ", ") + " did not confirm the purge")}
}

// forgetConfirmed deletes what partners confirmed of a batch that is done.
func (r *Collector) forgetConfirmed(ctx context.Context, b *batch) error {
	if len(b.objects) == 0 {
		return nil
	}
	has, _, err := r.mirrored(ctx, b)
	if err != nil {
		return err
	}
	for partner := range has {
		for _, o := range b.objects {
			key := wire.MirrorConfirmedKey(partner, o)
			if _, err := r.kv.Get(ctx, key); errors.Is(err, jetstream.ErrKeyNotFound) {
				continue
			} else if err != nil {
				return fmt.Errorf("what partner %s confirmed: %w", partner, err)
			}
			if err := r.cfg.Lease.Check(); err != nil {
				return err
			}
			if err := r.kv.Delete(ctx, key); err != nil {
				return fmt.Errorf("delete %s of %s: %w", key, r.kv.Bucket(), err)
			}
		}
	}
	return nil
}
