// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/substorm/substorm/ingest-gateway/spool"
	"github.com/substorm/substorm/internal/wire"
)

// errSpool: the spool did not take the object.
var errSpool = errors.New("spool")

// Copier has other gateways keep copies of what goes to the spool.
type Copier interface {
	// Peer is the gateway that would; empty if there is none.
	Peer() string
	// Copy returns the gateway that has the object on its disk. Errors: replica.ErrNoPeer, ctx's.
	Copy(ctx context.Context, n wire.Notice, body io.ReadSeeker) (peer string, err error)
	// Done says, sooner or later, that an object is archived.
	Done(peer, id string)
}

// spoolPart keeps the full buffer in the spool and continues with an empty one.
func (o *Object) spoolPart() error {
	if err := o.archive.MayKeep(); err != nil {
		return err
	}
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

// spool keeps the whole object in the spool, or in two. After that it is received.
func (o *Object) spool(ctx context.Context, n wire.Notice, to place) error {
	if len(o.spooled) == 0 {
		if !o.buffer.InMemory() {
			if err := checkScratch(o.buffer.Reader(), n.Digest); err != nil {
				return err
			}
		}
		return o.spoolBytes(ctx, n, o.buffer.Reader(), to)
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
	peer, err := a.copy(ctx, n, body, to)
	if err != nil {
		return err
	}
	parts := o.spooled
	o.spooled = nil // the spool drops them where it takes no object
	return a.countInSpool(n, peer, a.cfg.Spool.Copied(n, peer, nil, 0, parts...))
}

// spoolBytes keeps an object in the spool that is in memory.
func (o *Object) spoolBytes(ctx context.Context, n wire.Notice, body io.ReadSeeker, to place) error {
	peer, err := o.archive.copy(ctx, n, body, to)
	if err != nil {
		return err
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return o.archive.countInSpool(n, peer, o.archive.cfg.Spool.Copied(n, peer, body, n.Size))
}

// countInSpool counts an object that is in the spool, unless that failed: then no
// copy is to be kept either.
func (a *Archive) countInSpool(n wire.Notice, peer string, err error) error {
	if err != nil {
		a.tellArchived(peer, n.ID)
		return fmt.Errorf("%w: %w", errSpool, err)
	}
	a.spooled(n)
	return nil
}

// copy has a peer keep a copy, if the object goes into two spools, and returns the peer. It comes
// before the spool: an object without a receipt is in neither.
func (a *Archive) copy(ctx context.Context, n wire.Notice, body io.ReadSeeker, to place) (peer string, err error) {
	if to != inTwoSpools {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.shortTimeout(n.Size))
	defer cancel()
	return a.cfg.Copier.Copy(ctx, n, body)
}

// finish says that an entry is archived.
func (a *Archive) finish(e *spool.Entry) error {
	if err := a.cfg.Spool.Done(e); err != nil {
		return err
	}
	a.tellArchived(e.Peer, e.Notice.ID)
	return nil
}

// tellArchived notifies a peer that it may forget its copy.
func (a *Archive) tellArchived(peer, id string) {
	if peer != "" && a.cfg.Copier != nil {
		a.cfg.Copier.Done(peer, id)
	}
}
