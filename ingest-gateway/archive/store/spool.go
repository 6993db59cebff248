// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/substorm/substorm/ingest-gateway/announce"
	"github.com/substorm/substorm/ingest-gateway/archive/spool"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// brisk is the rate, in bytes a second, that a store is given beside ShortWait.
const brisk = 4 << 20

// The values of acknowledge, as in the Instrument's spec. Replicated needs a
// second gateway's spool and acts as Stored until there is that.
const (
	storedOrSpooled = "StoredOrSpooled"
	spooledOnly     = "Spooled"
)

// errSpool: the spool did not take the object.
var errSpool = errors.New("spool")

// maySpool says whether a receipt may mean that the object is in the spool.
func (o *Object) maySpool() bool {
	how := o.instrument.Acknowledge
	return o.archive.cfg.Spool != nil && (how == storedOrSpooled || how == spooledOnly)
}

// mustSpool says whether the object goes there without asking the store.
func (o *Object) mustSpool() bool {
	return o.maySpool() && (o.instrument.Acknowledge == spooledOnly || o.archive.health.away())
}

// spoolPart keeps the full buffer in the spool and goes on with an empty one.
func (o *Object) spoolPart() error {
	o.buffer.Seal()
	place, err := o.archive.cfg.Spool.Part(o.buffer.Reader(), o.buffer.Size())
	if err != nil {
		return fmt.Errorf("%w: %w", errSpool, err)
	}
	o.spooled = append(o.spooled, place)
	o.buffer.Release()
	o.buffer = o.archive.cfg.Pool.NewBuffer(PartSize, o.wake)
	return nil
}

// spool keeps the whole object in the spool. After that it is received.
func (o *Object) spool(n wire.Notice) error {
	a := o.archive
	var err error
	if len(o.spooled) > 0 {
		if o.buffer.Size() > 0 {
			if err := o.spoolPart(); err != nil {
				return err
			}
		}
		parts := o.spooled
		o.spooled = nil // the spool drops them where it takes no object
		err = a.cfg.Spool.Object(n, nil, 0, parts...)
	} else {
		return a.spoolObject(n, o.buffer.Reader())
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errSpool, err)
	}
	a.spooled(n)
	return nil
}

// spoolObject keeps an object in the spool that is in memory.
func (a *Archive) spoolObject(n wire.Notice, body io.ReadSeeker) error {
	if err := a.cfg.Spool.Object(n, body, n.Size); err != nil {
		return fmt.Errorf("%w: %w", errSpool, err)
	}
	a.spooled(n)
	return nil
}

// spooled counts an object that is safe in the spool.
func (a *Archive) spooled(n wire.Notice) {
	a.cfg.Ledger.Received(n.Instrument, n.ReceivedAt, n.Size, n.Digest)
	a.metrics.spooled.WithLabelValues(n.Instrument).Inc()
	a.metrics.spooledBytes.WithLabelValues(n.Instrument).Add(float64(n.Size))
}

// outcome is what became of a notice.
type outcome struct {
	announcement *announce.Announcement
	err          error
}

// announceOrSpool announces an object that is stored. Where JetStream does not
// answer soon, the notice is kept in the spool.
func (a *Archive) announceOrSpool(ctx context.Context, n wire.Notice) error {
	if a.homing.streamAway.Load() {
		if err := a.spoolNotice(n); err == nil {
			return nil
		} // JetStream may take it all the same
	}
	short, cancel := context.WithTimeout(ctx, a.cfg.ShortWait)
	defer cancel()
	settled := make(chan outcome, 1)
	a.homing.fly(n.ID, settled)
	_, err := a.cfg.Publisher.Publish(short, n, func(d *announce.Announcement, err error) { settled <- outcome{d, err} })
	if err == nil || errors.Is(err, stream.ErrRefused) {
		a.homing.land(n.ID)
		return a.announced(n, <-settled)
	}
	a.homing.streamAway.Store(true)
	if a.spoolNotice(n) == nil {
		return nil // whoever brings it home hears what became of this try
	}
	a.homing.land(n.ID)
	long, cancel := context.WithTimeout(ctx, a.cfg.Patience)
	defer cancel()
	select {
	case o := <-settled:
		return a.announced(n, o)
	case <-long.Done():
		// It is counted when it is known.
		go func() { _ = a.announced(n, <-settled) }()
		return fmt.Errorf("%w: %w", stream.ErrUnavailable, context.Cause(long))
	}
}

func (a *Archive) spoolNotice(n wire.Notice) error {
	if err := a.cfg.Spool.Notice(n); err != nil {
		if !errors.Is(err, spool.ErrFull) && !errors.Is(err, spool.ErrClosed) {
			a.cfg.Logger.Error("the spool does not take a notice", "key", n.Key, "error", err)
		}
		return err
	}
	a.spooled(n)
	return nil
}

// announced counts what became of the notice of an object that is not in the spool.
func (a *Archive) announced(n wire.Notice, o outcome) error {
	if o.err != nil {
		a.cfg.Ledger.Unfinished(n.Instrument, n.ReceivedAt, stream.CauseOf(o.err), n.Size)
		return o.err
	}
	a.homing.streamAway.Store(false)
	o.announcement.Count()
	a.cfg.Ledger.Received(n.Instrument, n.ReceivedAt, n.Size, n.Digest)
	a.metrics.received(n.Instrument, n.Size)
	return nil
}
