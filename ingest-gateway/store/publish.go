// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/spool"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// This file makes the notices of objects. For objects that are in the store it publishes them, marks the names, and
// counts the objects.

// lastWords is how long a notice on its way may take once the gateway ends.
const lastWords = 5 * time.Second

// notice is the object's, as it will be announced if it is under its own key without a name.
func (o *Object) notice(receivedAt time.Time, digest wire.Digest) wire.Notice {
	if o.mirrored != nil {
		return o.mirroredNotice(digest)
	}
	cfg := &o.archive.cfg
	key := wire.RawKey(cfg.Site, o.instrument.Name, receivedAt, digest)
	n := wire.Notice{Site: cfg.Site, Instrument: o.instrument.Name, Record: wire.Record{
		ID: key, Key: key, Name: o.name, Size: o.size, Digest: digest,
		MediaType: cmp.Or(o.mediaType, o.instrument.MediaType), Looks: o.looks, State: wire.StateCurrent,
		ReceivedAt: receivedAt, ClockStepMillis: o.clockStep.Milliseconds(), TimeSource: wire.TimeSourceReceived,
		Completeness: o.completeness,
		Source:       o.source.String(), Port: o.port, Framing: o.framing, Gateway: cfg.Gateway, Incarnation: cfg.Incarnation,
	}}
	if !o.observed.IsZero() {
		n.SetObserved(o.observed, o.instrument.ObservationName.Resolution())
		n.Backfill = n.IsLate(receivedAt, o.instrument.LateAfter)
	}
	n.Path = objectpath.Path(o.instrument.Naming, n.Instrument, o.instrument.Station, n.Record, 0)
	return n
}

// readObservationTime reads out of the object's name when it was observed, if the Instrument says
// that names have it.
func (o *Object) readObservationTime() {
	t := o.instrument.ObservationName
	if t == nil {
		return
	}
	v, err := t.Read(o.name)
	if err != nil || !wire.BelievesObserved(v.Time, o.receivedAt) {
		o.archive.metrics.unknownTimes.WithLabelValues(o.instrument.Name).Inc()
	}
	if err == nil {
		o.observed = v.Time
	}
}

// publish publishes a notice, whatever the place of its object, as announce.Announcer.Notice does. The name of the
// object is marked before settled is called for a notice that is in the stream.
func (a *Archive) publish(ctx context.Context, n wire.Notice, settled func(error)) error {
	return a.cfg.Announcer.Notice(ctx, n, func(err error) {
		if err == nil {
			a.named(n)
		}
		settled(err)
	})
}

// named notes that an object with a name is announced, or sure to be.
func (a *Archive) named(n wire.Notice) {
	if n.Name != "" {
		a.cfg.Names.Announced(n)
	}
}

// countedError is an error of an object that the ledger counts already.
type countedError struct{ error }

func (e *countedError) Unwrap() error { return e.error }

// announce publishes the notice of an object that was received and is in the store, and counts the object. If
// JetStream does not answer soon, the spool may keep the notice.
func (a *Archive) announce(ctx context.Context, n wire.Notice, ask asking) error {
	if ask == patiently {
		// The outcome of the notice is counted even if it is known only after the sender has its answer.
		return a.publishCounted(ctx, n, func(err error) { _ = a.received(n, err) })
	}
	if ask == later && a.spoolNotice(n) == nil {
		return nil
	} // JetStream may take it all the same
	short, cancel := context.WithTimeout(ctx, a.cfg.ShortWait)
	defer cancel()
	settled := make(chan error, 1)
	a.inFlight.Store(n.ID, settled)
	err := a.publish(short, n, func(err error) { settled <- err })
	if err == nil || errors.Is(err, stream.ErrRefused) {
		a.inFlight.Delete(n.ID)
		return a.received(n, <-settled)
	}
	a.streamAway.Store(true)
	if a.spoolNotice(n) == nil {
		return nil // the gateway that drains it gets the outcome of this try
	}
	a.inFlight.Delete(n.ID)
	long, cancel := context.WithTimeout(ctx, a.cfg.Patience)
	defer cancel()
	select {
	case err := <-settled:
		return a.received(n, err)
	case <-long.Done():
		go func() { _ = a.received(n, <-settled) }() // it is counted when it is known
		return &countedError{fmt.Errorf("%w: %w", stream.ErrUnavailable, context.Cause(long))}
	}
}

// publishCounted publishes a notice for as long as objects may wait. Count counts what becomes of it.
func (a *Archive) publishCounted(ctx context.Context, n wire.Notice, count func(error)) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Patience)
	defer cancel()
	if err := a.publish(ctx, n, count); err != nil {
		return &countedError{err}
	}
	return nil
}

// received counts an object that is not in the spool, once it is known what became of its notice.
func (a *Archive) received(n wire.Notice, err error) error {
	if err != nil {
		a.cfg.Ledger.Unfinished(n.Instrument, n.ReceivedAt, stream.CauseOf(err), n.Size)
		return &countedError{err}
	}
	a.streamAway.Store(false)
	a.cfg.Ledger.Received(n.Instrument, n.ReceivedAt, n.Size, n.Digest)
	a.metrics.received(n.Instrument, n.Size)
	return nil
}

// spooled counts an object whose bytes, or only its notice, the spool has.
func (a *Archive) spooled(n wire.Notice) {
	a.cfg.Ledger.Received(n.Instrument, n.ReceivedAt, n.Size, n.Digest)
	a.metrics.spooled.WithLabelValues(n.Instrument).Inc()
	a.metrics.spooledBytes.WithLabelValues(n.Instrument).Add(float64(n.Size))
}

// Acknowledged counts that the receipt of an object was delivered.
func (a *Archive) Acknowledged(in *intake.Instrument, receivedAt time.Time) {
	a.cfg.Ledger.Acknowledged(in.Name, receivedAt)
}

// spoolNotice keeps the notice of an object that is in the store in the spool.
func (a *Archive) spoolNotice(n wire.Notice) error {
	if err := a.cfg.Spool.Notice(n); err != nil {
		if !errors.Is(err, spool.ErrFull) && !errors.Is(err, spool.ErrClosed) {
			a.cfg.Logger.Error("cannot write a notice to the spool", "key", n.Key, "error", err)
		}
		return err
	}
	a.spooled(n)
	a.named(n)
	return nil
}

// announceEntry publishes the notice of an object from the spool that is in the store, and tries until ctx
// ends.
func (a *Archive) announceEntry(ctx context.Context, n wire.Notice) error {
	earlier, _ := a.inFlight.LoadAndDelete(n.ID)
	settled, _ := earlier.(chan error)
	for said := false; ; said = true {
		if settled == nil {
			settled = make(chan error, 1)
			publish, cancel := context.WithCancel(ctx)
			cancel() // what became of it comes over the channel
			_ = a.publish(publish, n, func(err error) { settled <- err })
		}
		err := a.awaitSettled(ctx, settled)
		if err == nil {
			a.streamAway.Store(false)
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		if !said {
			a.cfg.Logger.Warn("cannot publish the notice of a spooled object; retrying", "key", n.Key, "error", err)
		}
		settled = nil
		retry.Sleep(ctx, drainPause)
	}
}

// awaitSettled waits for what becomes of a notice; a little longer than ctx.
func (a *Archive) awaitSettled(ctx context.Context, settled chan error) error {
	select {
	case err := <-settled:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-settled:
		return err
	case <-time.After(lastWords):
		return fmt.Errorf("%w: %w", stream.ErrUnavailable, context.Cause(ctx))
	}
}

// announceCopy publishes the notice of an object from this gateway's copy, as the sweep does: no gateway counts
// it as its own, and no caller waits for it for longer than the store.
func (a *Archive) announceCopy(ctx context.Context, n wire.Notice) error {
	msg, err := stream.NoticeMessage(n, a.cfg.Gateway)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Patience)
	defer cancel()
	if _, err := a.cfg.JetStream.PublishMsg(ctx, msg); err != nil {
		return fmt.Errorf("notice of %s: %w: %w", n.Key, stream.ErrUnavailable, err)
	}
	a.named(n)
	return nil
}
