// SPDX-License-Identifier: Apache-2.0

package gaps

import (
	"context"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// spoolPatience is how long what waits in a spool keeps gaps from being found: what is
// older may be on a node that never returns.
const spoolPatience = 24 * time.Hour

// settled is up to when nothing waits in a spool that was received.
func (k *Keeper) settled(ctx context.Context, now time.Time) (time.Time, error) {
	settled := now
	err := stream.Entries(ctx, k.cfg.JetStream, k.status, wire.GatewayStatusKey("*"), func(entry jetstream.KeyValueEntry) error {
		report, err := wire.Decode[wire.GatewayStatus](entry.Value())
		if err != nil || report.Spool == nil || report.Spool.Objects == 0 || report.Spool.Oldest == nil {
			return err
		}
		if oldest := *report.Spool.Oldest; now.Sub(oldest) < spoolPatience {
			settled = minTime(settled, oldest)
		}
		return nil
	})
	return settled, err
}

// evidence reads what may say why something is missing, but for the other instruments of the station.
func (k *Keeper) evidence(ctx context.Context, e *wire.InstrumentEntry, day wire.Day) (Evidence, error) {
	var ev Evidence
	received, announced := map[string]wire.Totals{}, map[string]wire.Totals{}
	err := stream.Entries(ctx, k.cfg.JetStream, k.ledger, wire.LedgerKey(e.Instrument, day, "*", "*"), func(entry jetstream.KeyValueEntry) error {
		_, _, step, _, err := wire.ParseLedgerKey(entry.Key())
		if err != nil {
			return err
		}
		totals, err := wire.Decode[wire.LedgerEntry](entry.Value())
		switch step {
		case wire.StepReceived:
			maps.Copy(received, totals.Incarnations)
		case wire.StepAnnounced:
			maps.Copy(announced, totals.Incarnations)
		case wire.StepStored:
			ev.Stored = ev.Stored.Plus(totals.Sum())
		}
		return err
	})
	if err != nil {
		return ev, err
	}
	ev.Received = wire.Reconcile(received, announced, ev.Stored)
	err = stream.Entries(ctx, k.cfg.JetStream, k.status, wire.RefusalStatusKey(e.Instrument, "*"), func(entry jetstream.KeyValueEntry) error {
		status, err := wire.Decode[wire.RefusalStatus](entry.Value())
		for _, refused := range status.Refused {
			ev.Refused = append(ev.Refused, refused.At)
		}
		return err
	})
	if err != nil {
		return ev, err
	}
	var senders []wire.SenderStatus
	err = stream.Entries(ctx, k.cfg.JetStream, k.status, wire.SenderStatusKey(e.Instrument, "*"), func(entry jetstream.KeyValueEntry) error {
		status, err := wire.Decode[wire.SenderStatus](entry.Value())
		senders = append(senders, status)
		return err
	})
	if err != nil {
		return ev, err
	}
	if len(senders) > 0 {
		ev.Sender = new(wire.MergeSenders(senders))
	}
	return ev, nil
}
