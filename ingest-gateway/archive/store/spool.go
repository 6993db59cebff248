// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/substorm/substorm/ingest-gateway/archive/spool"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// brisk is the rate, in bytes a second, that a store is given beside ShortWait.
const brisk = 4 << 20

// The values of acknowledge, as in the Instrument's spec. Replicated needs a
// second gateway's spool and acts as Stored while there is none.
const (
	storedOrSpooled = "StoredOrSpooled"
	spooledOnly     = "Spooled"
	replicated      = "Replicated"
)

// errSpool: the spool did not take the object.
var errSpool = errors.New("spool")

// Copier has other gateways keep copies of what goes to the spool.
type Copier interface {
	// Peer is who would; empty where nobody does.
	Peer() string
	// Copy returns who has the object on its disk. Errors: replica.ErrNoPeer, ctx's.
	Copy(ctx context.Context, n wire.Notice, body io.ReadSeeker) (peer string, err error)
	// Done says, sooner or later, that an object is at home.
	Done(peer, id string)
}

// maySpool says whether a receipt may mean that the object is in the spool.
func (o *Object) maySpool() bool {
	how := o.instrument.Acknowledge
	return o.archive.cfg.Spool != nil && (how == storedOrSpooled || how == spooledOnly || o.isReplicated() && o.archive.cfg.Copier.Peer() != "")
}

// isReplicated says whether what goes to the spool needs a copy elsewhere.
func (o *Object) isReplicated() bool {
	return o.archive.cfg.Copier != nil && o.instrument.Acknowledge == replicated
}

// mustSpool says whether the object goes there without asking the store.
func (o *Object) mustSpool() bool {
	return o.maySpool() && (o.instrument.Acknowledge == spooledOnly || o.archive.health.away())
}

// spoolPart keeps the full buffer in the spool and goes on with an empty one.
func (o *Object) spoolPart() error {
	o.buffer.Seal()
	digest := o.digest
	if len(o.spooled) > 0 {
		digest = o.part
	}
	if !o.buffer.InMemory() {
		if err := checkScratch(o.buffer.Reader(), digest.digest()); err != nil {
			return err
		}
	}
	place, err := o.archive.cfg.Spool.Part(o.buffer.Reader(), o.buffer.Size())
	if err != nil {
		return fmt.Errorf("%w: %w", errSpool, err)
	}
	o.spooled = append(o.spooled, place)
	o.part.Reset()
	o.buffer.Release()
	o.buffer = o.archive.cfg.Pool.NewBuffer(PartSize, o.wake)
	return nil
}

// spool keeps the whole object in the spool. After that it is received.
func (o *Object) spool(ctx context.Context, n wire.Notice) error {
	if len(o.spooled) == 0 {
		if !o.buffer.InMemory() {
			if err := checkScratch(o.buffer.Reader(), n.Digest); err != nil {
				return err
			}
		}
		return o.spoolBytes(ctx, n, o.buffer.Reader())
	}
	if o.buffer.Size() > 0 {
		if err := o.spoolPart(); err != nil {
			return err
		}
	}
	a := o.archive
	body, err := a.cfg.Spool.Parts(o.spooled)
	if err != nil {
		return fmt.Errorf("%w: %w", errSpool, err)
	}
	defer body.Close()
	peer, err := o.copy(ctx, n, body)
	if err != nil {
		return err
	}
	parts := o.spooled
	o.spooled = nil // the spool drops them where it takes no object
	return a.inSpool(n, peer, a.cfg.Spool.Copied(n, peer, nil, 0, parts...))
}

// spoolBytes keeps an object in the spool that is in memory.
func (o *Object) spoolBytes(ctx context.Context, n wire.Notice, body io.ReadSeeker) error {
	peer, err := o.copy(ctx, n, body)
	if err != nil {
		return err
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return o.archive.inSpool(n, peer, o.archive.cfg.Spool.Copied(n, peer, body, n.Size))
}

// inSpool counts an object that is in the spool, unless that failed: then no
// copy is to be kept either.
func (a *Archive) inSpool(n wire.Notice, peer string, err error) error {
	if err != nil {
		a.isHome(peer, n.ID)
		return fmt.Errorf("%w: %w", errSpool, err)
	}
	a.spooled(n)
	return nil
}

// copy has a peer keep a copy, where acknowledge asks for that, and returns who
// does. It comes before the spool: what has no receipt is in neither.
func (o *Object) copy(ctx context.Context, n wire.Notice, body io.ReadSeeker) (peer string, err error) {
	if !o.isReplicated() {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, o.archive.cfg.ShortWait+time.Duration(n.Size)*time.Second/brisk)
	defer cancel()
	return o.archive.cfg.Copier.Copy(ctx, n, body)
}

// finish says that an entry is at home.
func (a *Archive) finish(e *spool.Entry) error {
	if err := a.cfg.Spool.Done(e); err != nil {
		return err
	}
	a.isHome(e.Peer, e.Notice.ID)
	return nil
}

// isHome tells a peer that it may forget its copy.
func (a *Archive) isHome(peer, id string) {
	if peer != "" && a.cfg.Copier != nil {
		a.cfg.Copier.Done(peer, id)
	}
}

// spooled counts an object that is safe in the spool.
func (a *Archive) spooled(n wire.Notice) {
	a.cfg.Ledger.Received(n.Instrument, n.ReceivedAt, n.Size, n.Digest)
	a.metrics.spooled.WithLabelValues(n.Instrument).Inc()
	a.metrics.spooledBytes.WithLabelValues(n.Instrument).Add(float64(n.Size))
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
	settled := make(chan error, 1)
	a.homing.fly(n.ID, settled)
	err := a.cfg.Announcer.Notice(short, n, func(err error) { settled <- err })
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
	case err := <-settled:
		return a.announced(n, err)
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
func (a *Archive) announced(n wire.Notice, err error) error {
	if err != nil {
		a.cfg.Ledger.Unfinished(n.Instrument, n.ReceivedAt, stream.CauseOf(err), n.Size)
		return err
	}
	a.homing.streamAway.Store(false)
	a.cfg.Ledger.Received(n.Instrument, n.ReceivedAt, n.Size, n.Digest)
	a.metrics.received(n.Instrument, n.Size)
	return nil
}
