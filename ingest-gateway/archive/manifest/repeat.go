// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// decide makes a notice that repeats an earlier object a withdrawal. A segment
// is never one, and an object that has a name keeps it.
func (w *Writer) decide(ctx context.Context, n *wire.Notice) error {
	window := w.cfg.RepeatWindow(n.Instrument)
	if window <= 0 || n.Segment != nil || n.Name != "" {
		return nil
	}
	id, found := w.index.find(n.Instrument, n.Digest, n.ReceivedAt, window)
	if !found || id == n.ID {
		return nil
	}
	stays, err := w.originals.stays(ctx, id, *n)
	if err != nil {
		return err
	}
	if !stays {
		w.cfg.Log.Warn("an object stays although it repeats an earlier one, which is gone from the store",
			"instrument", n.Instrument, "object", n.ID, "earlier", id)
		return nil
	}
	n.State, n.RepeatOf = wire.StateWithdrawn, id
	w.withdrawals = append(w.withdrawals, *n)
	return nil
}

// withdrawAgain goes on with a withdrawal that is listed already.
func (w *Writer) withdrawAgain(ctx context.Context, d *day, n wire.Notice) error {
	if _, open, err := openRecord(d, n.ID); open || err != nil {
		return err // open: a repeat of the notice itself
	}
	r, err := withdrawnRecord(ctx, w.cfg.Store, w.cfg.Site, d.dayKey, n.ID)
	if err == nil && r.ID == n.ID {
		n.Record = r
		w.withdrawals = append(w.withdrawals, n)
	}
	return err
}

// withdrawnRecord finds a withdrawn object in the closed parts of a day, or
// nothing.
func withdrawnRecord(ctx context.Context, store objectstore.Store, site string, of dayKey, id string) (wire.Record, error) {
	files, err := read.List(ctx, store, site, of.instrument, of.day)
	if err != nil {
		return wire.Record{}, err
	}
	for r, err := range files.Lines(ctx, store) {
		if err != nil {
			return wire.Record{}, err
		}
		if r.ID == id && r.State == wire.StateWithdrawn {
			return r, nil
		}
	}
	return wire.Record{}, nil
}

// withdraw says that a repeat goes, and then lets it go. Its record in a closed
// part comes first: whatever happens in between, the object is listed once.
func withdraw(ctx context.Context, cfg withdrawConfig, n wire.Notice) error {
	stays, err := cfg.originals.stays(ctx, n.RepeatOf, n)
	if err != nil {
		return err
	}
	if !stays {
		cfg.log.Error("a repeat is kept: the object that it repeats is gone from the store",
			"instrument", n.Instrument, "object", n.ID, "earlier", n.RepeatOf)
		return nil
	}
	if err := cfg.lease.Check(); err != nil {
		return err
	}
	if _, err := publish(ctx, cfg.js, n, cfg.gateway); err != nil {
		return err
	}
	if n.InPack() {
		return nil // its bytes go when the pack is rewritten
	}
	if !wire.IsOurs(n.Key) {
		return nil // imported in place: not ours to remove
	}
	return cfg.store.Delete(ctx, n.Key)
}

type withdrawConfig struct {
	js      jetstream.JetStream
	store   objectstore.Store
	lease   Lease
	gateway string
	log     *slog.Logger

	originals *originals
}

// publish returns whether the stream took the notice; it does not take one that
// it took in the last two minutes.
func publish(ctx context.Context, js jetstream.JetStream, n wire.Notice, gateway string) (taken bool, err error) {
	m, err := stream.NoticeMessage(n, gateway)
	if err != nil {
		return false, err
	}
	ack, err := js.PublishMsg(ctx, m)
	if err != nil {
		return false, fmt.Errorf("publish the notice %s: %w", n.MessageID(), err)
	}
	return !ack.Duplicate, nil
}
