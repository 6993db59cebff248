// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"

	"github.com/substorm/substorm/ingest-gateway/names"
	"github.com/substorm/substorm/ingest-gateway/spool"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// errDuplicate says that an equal object has the name of one from the spool, and
// is announced.
var errDuplicate = errors.New("an equal object has the name")

// claimEntry gives a spooled object its name, if it has none yet. It was receipted: if other bytes
// have the name meanwhile, it is the next version, whatever the instrument says; if the name is a
// folder, or is in an object, both stay, and copies of the archive give them distinct paths. If an
// equal object that was announced has the name, that object is in the store in the end:
// errDuplicate.
func (a *Archive) claimEntry(ctx context.Context, e *spool.Entry, n *wire.Notice) error {
	return a.claimBeyond(ctx, e, n, 0)
}

// claimBeyond does that beyond the version that expired.
func (a *Archive) claimBeyond(ctx context.Context, e *spool.Entry, n *wire.Notice, version int) error {
	try, cancel := context.WithTimeout(ctx, a.cfg.Patience)
	defer cancel()
	held, err := a.cfg.Names.Claim(try, wanted(*n, false, version))
	if why := err; errors.Is(why, names.ErrConflict) {
		anyhow := wanted(*n, true, version)
		anyhow.Receipted = true
		if held, err = a.cfg.Names.Claim(try, anyhow); err == nil && held.Own {
			a.metrics.conflicts.WithLabelValues(n.Instrument).Inc()
			a.cfg.Logger.Warn("the name of a spooled object is taken by another object; keeping the spooled one as the next version of the name",
				"instrument", n.Instrument, "name", n.Name, "version", held.Version, "cause", wire.CauseNameConflict, "error", why)
		}
	}
	if err != nil {
		return err
	}
	if setVersion(n, held); !held.Announced || held.Own {
		return nil
	}
	first, state, err := a.nameStands(ctx, *n, held.NameVersion)
	if err == nil && state == expired {
		return a.claimBeyond(ctx, e, n, held.Version)
	}
	if err == nil && state == lost {
		err = a.restoreEntry(ctx, e, first)
	}
	if err != nil {
		return err
	}
	return errDuplicate
}

// restoreEntry stores an object again that the store lost, from an equal one in the spool.
func (a *Archive) restoreEntry(ctx context.Context, e *spool.Entry, first wire.Notice) error {
	err := a.sendEntry(ctx, e, first, false)
	if err == nil {
		a.reportRepaired(ctx, first)
	}
	return err
}

// putNamedEntry sends the object once. If an equal object is there, that one is announced.
func (a *Archive) putNamedEntry(ctx context.Context, e *spool.Entry, n wire.Notice) error {
	err := a.sendEntry(ctx, e, n, true)
	if !errors.Is(err, objectstore.ErrExists) {
		return err
	}
	if ours, err := a.isStored(ctx, n); err != nil || ours {
		return err
	}
	first, announced, err := a.findEqual(ctx, n)
	if errors.Is(err, errReplaced) {
		first, err = n, a.restoreEntry(ctx, e, n)
	}
	if err != nil {
		return err
	}
	if announced || a.awaitAnnounced(ctx, n) {
		a.named(first)
	} else if err := a.announceEntry(ctx, first); err != nil {
		return err
	}
	return errDuplicate
}

// finishDuplicate finishes an entry that has an equal object announced under its name. It was
// counted as received, and is not kept once more.
func (a *Archive) finishDuplicate(e *spool.Entry) error {
	err := a.cfg.Ledger.Resolved(e.Notice, wire.CauseDuplicate, func() error { return a.finish(e) })
	if err == nil {
		a.metrics.duplicates.WithLabelValues(e.Notice.Instrument).Inc()
	}
	return err
}
