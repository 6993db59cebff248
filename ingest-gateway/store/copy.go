// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"

	"github.com/substorm/substorm/ingest-gateway/spool"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// DrainCopy archives an object from this gateway's copy, unless it is there. It counts nothing: the
// gateway that received it counts it once it is back; if it never is, `substorm spool abandon`
// does. Errors: spool.ErrCorrupt, of the store, stream.ErrUnavailable, ctx's.
func (a *Archive) DrainCopy(ctx context.Context, e *spool.Entry) error {
	if err := verifyEntry(e); err != nil {
		return err
	}
	n := e.Notice
	n.BroughtBy = a.cfg.Gateway
	if n.Name != "" {
		if err := a.claimEntry(ctx, e, &n); errors.Is(err, errDuplicate) {
			return nil // an equal object has the name, and is announced
		} else if err != nil {
			return err
		}
	}
	for {
		there, err := a.lookUp(ctx, n)
		switch {
		case errors.Is(err, objectstore.ErrNotFound):
			if err := a.sendEntry(ctx, e, n, true); err == nil {
				return a.announceCopy(ctx, n)
			} else if !errors.Is(err, objectstore.ErrExists) {
				return err
			}
		case err != nil:
			return err
		case !sameObject(there, n) && n.Name != "":
			return a.bringNamed(ctx, e, n)
		case !sameObject(there, n): // as the gateway that received it would
			n = withNextKey(n)
		case there.BroughtBy == a.cfg.Gateway:
			return a.announceCopy(ctx, n) // an earlier incarnation may have not
		default:
			return nil // the gateway that stored it announces it, or the sweep does
		}
	}
}

// bringNamed archives a named copy whose key has another object, or something that is no object: an
// equal object is announced by its gateway, and anything that is no object is replaced. Errors: as
// of lying, and of the store.
func (a *Archive) bringNamed(ctx context.Context, e *spool.Entry, n wire.Notice) error {
	_, _, err := a.readStored(ctx, n.Key, n.Digest)
	if !errors.Is(err, errReplaced) {
		return err
	}
	if err := a.restoreEntry(ctx, e, n); err != nil {
		return err
	}
	return a.announceCopy(ctx, n)
}
