// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// The ledger's stored column of datagrams has one entry per instrument and day;
// in the place of incarnations stand the channels, and wire.UnknownChannel for
// messages whose subject names none. Datagrams that are in no segment stand in it
// by cause, so that it adds up to what was announced.

// ledgerTotals returns what the ledger holds for a channel's day, for days that
// the cursor has already forgotten.
func (c *Cutter) ledgerTotals(ctx context.Context, ch *channel, day wire.Day) (wire.Totals, error) {
	if _, known := ch.cursor.Stored[day]; known {
		return wire.Totals{}, nil
	}
	entry, _, err := c.ledgerEntry(ctx, ch.instrument, day)
	return entry.Incarnations[ch.channel], err
}

func (c *Cutter) ledgerEntry(ctx context.Context, instrument string, day wire.Day) (wire.LedgerEntry, string, error) {
	key := wire.LedgerKey(instrument, day, wire.StepStored, wire.ArchivistWriter)
	var e jetstream.KeyValueEntry
	err := c.insist(ctx, requestLedger, "key", key, func() (err error) {
		e, err = c.ledger.Get(ctx, key)
		return err
	})
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return wire.LedgerEntry{}, key, nil
	}
	if err != nil {
		return wire.LedgerEntry{}, key, fmt.Errorf("read %s of the ledger: %w", key, err)
	}
	entry, err := wire.DecodeLedgerEntry(e.Value())
	if err != nil {
		return wire.LedgerEntry{}, key, fmt.Errorf("read %s of the ledger: %w", key, err)
	}
	return entry, key, nil
}

// saveLedger writes the totals of a channel's days where the ledger has others.
func (c *Cutter) saveLedger(ctx context.Context, ch *channel) error {
	for day, totals := range ch.cursor.Stored {
		entry, key, err := c.ledgerEntry(ctx, ch.instrument, day)
		if err != nil {
			return err
		}
		if was := entry.Incarnations[ch.channel]; was.Datagrams == totals.Datagrams && was.DatagramBytes == totals.DatagramBytes &&
			maps.Equal(was.Dropped, totals.Dropped) {
			continue
		}
		if entry.Incarnations == nil {
			entry.Incarnations = make(map[string]wire.Totals)
		}
		entry.Incarnations[ch.channel] = totals
		value, err := entry.Encode()
		if err != nil {
			return err
		}
		err = c.insist(ctx, requestLedger, "key", key, func() error {
			if _, err := c.ledger.Put(ctx, key, value); err != nil {
				return fmt.Errorf("write %s of the ledger: %w", key, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
