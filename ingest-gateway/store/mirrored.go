// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/names"
	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// This file stores what was pulled of guests (wire.GuestEntry). The ID and the key of such an object follow from its origin,
// so that it is stored once, however often and through however many gateways it comes. It has no name to claim, and its
// receipt means Stored: the run that pulled it can do so again.

// BeginMirrored is Begin for an object of a guest; m is what its origin knows of it. It is counted, and listed, on the day
// on which its origin received it.
func (a *Archive) BeginMirrored(in *intake.Instrument, source netip.AddrPort, wake func(), m wire.MirroredObject) *Object {
	o := a.begin(in, source, wake, m.ReceivedAt)
	o.mirrored = &m
	return o
}

// CheckMirrored returns wire.ErrMalformed for an object of a guest that the store could not keep with all that must be known
// of it.
func (a *Archive) CheckMirrored(in *intake.Instrument, source netip.AddrPort, m wire.MirroredObject) error {
	o := &Object{archive: a, instrument: in, source: source, mirrored: &m, size: m.Size}
	if n := withoutPath(o.mirroredNotice(m.Digest)); !wire.MetadataFits(n) {
		return fmt.Errorf("the ID %.100q of the object at its origin is too long for the metadata of an object in S3, which is limited to 2 KB: %w", m.Origin.ID, wire.ErrMalformed)
	}
	return nil
}

// mirroredNotice is the notice of an object of a guest.
func (o *Object) mirroredNotice(digest wire.Digest) wire.Notice {
	cfg, m := &o.archive.cfg, o.mirrored
	id := m.Origin.ObjectID(cfg.Site, o.instrument.Name, m.ReceivedAt, digest)
	return wire.Notice{Site: cfg.Site, Instrument: o.instrument.Name, Record: wire.Record{
		ID: id, Key: id, Path: m.Path, Size: o.size, Digest: digest, MediaType: cmp.Or(m.MediaType, o.instrument.MediaType),
		State: wire.StateCurrent, Version: m.Version, ObservedFrom: m.ObservedFrom, ObservedTo: m.ObservedTo,
		ReceivedAt: m.ReceivedAt, TimeSource: m.TimeSource, Backfill: true, Completeness: m.Completeness,
		Source: o.source.String(), Port: o.port, Gateway: cfg.Gateway, Incarnation: cfg.Incarnation, Origin: m.Origin,
	}}
}

// withoutPath returns a notice without its path: of what has no space for it in the metadata of the object only manifests
// have the path.
func withoutPath(n wire.Notice) wire.Notice {
	n.Path = ""
	return n
}

// keepMirrored stores an object of a guest, unless it stands already.
func (o *Object) keepMirrored(ctx context.Context, n wire.Notice) (_ wire.Notice, what outcome, err error) {
	a := o.archive
	release, err := a.lockKey(ctx, n.Key)
	if err != nil {
		return n, stored, err
	}
	defer release()
	_, why := a.findByKey(ctx, n.Instrument, n.Key, n.Digest)
	switch {
	case why == nil:
		n, err = a.join(ctx, o, n)
		return n, duplicate, err
	case errors.Is(why, names.ErrConflict):
		return n, stored, fmt.Errorf("%s of Site %s was mirrored before, and had other bytes: %w", n.Origin.ID, n.Origin.Site, why)
	case !errors.Is(why, objectstore.ErrNotFound) && !errors.Is(why, errReplaced):
		return n, stored, why
	}
	listed, found, err := a.listedIDs.find(ctx, n, o.mirrored.Listed)
	if err != nil {
		return n, stored, err
	}
	if found {
		return n, duplicate, o.keepListed(ctx, n, listed)
	}
	err = o.put(ctx, n, errors.Is(why, objectstore.ErrNotFound))
	if !errors.Is(err, objectstore.ErrExists) {
		return n, stored, err
	}
	ours, err := a.isStored(ctx, n)
	if err != nil || ours { // a try whose answer was lost had arrived
		return n, stored, err
	}
	n, err = a.join(ctx, o, n) // another gateway was there first
	return n, duplicate, err
}

// errDamagedPack: only the archivist rewrites packs.
var errDamagedPack = errors.New("it is listed, but damaged in its pack: see substorm archive verify")

// keepListed is for an object that the manifests list and that is not under its own key: it was purged, or is in a pack,
// or the store lost it and gets it back.
func (o *Object) keepListed(ctx context.Context, n wire.Notice, listed wire.Record) error {
	a := o.archive
	switch {
	case !bucket.Holds(listed):
	case listed.Digest != n.Digest:
		return fmt.Errorf("%s of Site %s was mirrored before, and had other bytes: %w", n.Origin.ID, n.Origin.Site, names.ErrConflict)
	case listed.Key != n.Key:
		err := a.verify(ctx, listed)
		if errors.Is(err, objectstore.ErrNotFound) || errors.Is(err, errReplaced) {
			return fmt.Errorf("%s: %w: %w", n.ID, errDamagedPack, err)
		}
		if err != nil {
			return err
		}
	default:
		n.Record = asReceived(n.Record, listed)
		if err := o.put(ctx, n, false); err != nil {
			return err
		}
		a.reportRepaired(ctx, n)
	}
	a.countDuplicate(o, n)
	return nil
}

// lockKey waits until no other object with the key is being stored through this gateway: an object there that then seems to be
// this gateway's is from an earlier try of the same one.
func (a *Archive) lockKey(ctx context.Context, key string) (release func(), err error) {
	mine := make(chan struct{})
	for {
		other, busy := a.mirroring.LoadOrStore(key, mine)
		if !busy {
			return func() { a.mirroring.Delete(key); close(mine) }, nil
		}
		select {
		case <-other.(chan struct{}):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
