// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/ingest-gateway/names"
	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// A duplicate may be receipted for an object that was stored earlier. The claim of the
// name says that it was stored; only the store knows whether it still is. So the
// store is asked before each such receipt, and what it lost is stored again from the
// bytes that the duplicate brings.

// standing says what became of an object that was stored earlier.
type standing int

const (
	// unknown: the store does not have it, and no manifest lists it yet.
	unknown standing = iota
	// whole: the store has it.
	whole
	// purged: a request removed its bytes.
	purged
	// expired: its bytes were removed since their time was over, or will be.
	expired
	// lost: the archive lists it, and the store does not have its bytes.
	lost
)

// errReplaced: the bytes under an object's key are of no object of the archive.
var errReplaced = errors.New("its bytes were replaced by others")

// nameStands says what became of the object that has a version of a name, and, if it is lost, how
// to store it again: as the manifest lists it, else as n says, the notice of the object that
// duplicates it. Errors: of the store and JetStream, and names.ErrConflict if another object of the
// archive has its key.
func (a *Archive) nameStands(ctx context.Context, n wire.Notice, v wire.NameVersion) (wire.Notice, standing, error) {
	n.ReceivedAt, n.Gateway, n.Incarnation = v.ReceivedAt, v.Gateway, v.Incarnation
	day := wire.DayOf(v.ReceivedAt)
	expires, err := a.expires(ctx, n.Instrument, day) // before the store is asked, which loses the bytes first
	if err != nil {
		return n, unknown, err
	}
	first, why := a.findByKey(ctx, n.Instrument, v.Key, v.Digest)
	switch {
	case why == nil && !expires:
		return first, whole, nil
	case why != nil && !errors.Is(why, objectstore.ErrNotFound) && !errors.Is(why, errReplaced):
		return n, unknown, why
	}
	listed, found, err := a.listing(ctx, n.Instrument, day, v.Key)
	isPurged := found && listed.State == wire.StatePurged
	switch {
	case err != nil:
		return n, unknown, err
	case isPurged && listed.ChangedBy != wire.ByRetention:
		return n, purged, nil
	case isPurged || expires:
		return n, expired, nil
	case found:
		n.Record = asReceived(n.Record, listed)
	}
	if v.Announced {
		a.cfg.Logger.Error("an object that was announced is not in the store", "instrument", n.Instrument, "object", v.Key, "found", why)
	}
	return n, lost, nil
}

// expires says whether all of a day is due to expire, as the bucket's leader has it: its bytes may
// be there for long after that, and go without another check.
func (a *Archive) expires(ctx context.Context, instrument string, day wire.Day) (bool, error) {
	_, revision, err := a.newest(ctx, wire.CursorBucket(a.cfg.Site), wire.Removal{Instrument: instrument, Day: day}.Key())
	return revision != 0, err
}

// newest reads a key as its bucket's leader has it, and its revision; 0 if there is none.
func (a *Archive) newest(ctx context.Context, bucket, key string) (value []byte, revision uint64, err error) {
	if a.cfg.JetStream == nil {
		return nil, 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ShortWait)
	defer cancel()
	value, revision, err = stream.Newest(ctx, a.cfg.JetStream, bucket, key)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return nil, 0, nil
	case err != nil:
		return nil, 0, fmt.Errorf("%w: bucket %s: %w", stream.ErrUnavailable, bucket, err)
	}
	return value, revision, nil
}

// asReceived is a record with what the manifest says of how its object came.
func asReceived(r, listed wire.Record) wire.Record {
	r.ReceivedAt, r.Gateway, r.Incarnation = listed.ReceivedAt, listed.Gateway, listed.Incarnation
	r.TimeSource, r.ObservedFrom, r.ObservedTo, r.Backfill = listed.TimeSource, listed.ObservedFrom, listed.ObservedTo, listed.Backfill
	r.Doubted = listed.Doubted
	r.ClockStepMillis = listed.ClockStepMillis
	r.Source, r.Port, r.Framing, r.Completeness = listed.Source, listed.Port, listed.Framing, listed.Completeness
	r.MediaType, r.Looks, r.Path = listed.MediaType, listed.Looks, listed.Path
	return r
}

// readStored returns the object under a key; it must have the digest. Errors: objectstore.ErrNotFound,
// errReplaced, names.ErrConflict, of the store.
func (a *Archive) readStored(ctx context.Context, key string, digest wire.Digest) (wire.Notice, objectstore.Info, error) {
	info, err := a.head(ctx, key)
	if err != nil {
		return wire.Notice{}, info, err
	}
	n, err := wire.NoticeFromMetadata(key, info.Metadata)
	switch {
	case errors.Is(err, wire.ErrNewerFormat):
		return n, info, err
	case err != nil || n.Digest == digest && n.Size != info.Size:
		return n, info, fmt.Errorf("%s: %w", key, errReplaced)
	case n.Digest != digest:
		return n, info, fmt.Errorf("the object under %s is not the one that claimed its name: %w", key, names.ErrConflict)
	}
	return n, info, nil
}

func (a *Archive) head(ctx context.Context, key string) (info objectstore.Info, err error) {
	err = a.request(ctx, "head", 0, func(ctx context.Context) (err error) {
		info, err = a.cfg.Objects.Head(ctx, key)
		return err
	})
	return info, err
}

// verify reads an object. Errors: objectstore.ErrNotFound, errReplaced, of the store.
func (a *Archive) verify(ctx context.Context, r wire.Record) error {
	err := a.request(ctx, "get", r.Size, func(ctx context.Context) error {
		return bucket.Verify(ctx, a.cfg.Objects, r, nil)
	})
	switch {
	case errors.Is(err, bucket.ErrMissing):
		return fmt.Errorf("%w: %w", objectstore.ErrNotFound, err)
	case errors.Is(err, objectpath.ErrDamaged):
		return fmt.Errorf("%w: %w", errReplaced, err)
	}
	return err
}

// listing returns what the manifest says of an object.
func (a *Archive) listing(ctx context.Context, instrument string, day wire.Day, id string) (listed wire.Record, found bool, err error) {
	err = a.eachListed(ctx, instrument, day, func(r wire.Record) bool {
		if found = r.ID == id; found {
			listed = r
		}
		return !found
	})
	return listed, found, err
}

// eachListed has what the manifests list of a day, until more is not wanted.
func (a *Archive) eachListed(ctx context.Context, instrument string, day wire.Day, more func(wire.Record) bool) error {
	select { // each holds what it reads of a day
	case a.listings <- struct{}{}:
		defer func() { <-a.listings }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", objectstore.ErrUnavailable, context.Cause(ctx))
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Patience)
	defer cancel()
	for r, err := range manifest.Records(ctx, a.cfg.Objects, a.cfg.Site, instrument, day) {
		if err != nil {
			return err
		}
		if !more(r) {
			break
		}
	}
	return nil
}

// NameStands says whether the object that has a version of a name may be receipted
// once more without its bytes: the store has it, or it was purged. Errors: as of
// nameStands.
func (a *Archive) NameStands(ctx context.Context, instrument string, v wire.NameVersion) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ShortWait)
	defer cancel()
	n := wire.Notice{Site: a.cfg.Site, Instrument: instrument, Record: wire.Record{ID: v.Key, Key: v.Key, Digest: v.Digest, Size: v.Size}}
	_, state, err := a.nameStands(ctx, n, v)
	return state == whole || state == purged, err
}

// Stands is NameStands for an object without a name, by its ID and digest; known is
// false where neither store nor manifests have heard of it: it may still wait in a spool.
func (a *Archive) Stands(ctx context.Context, instrument, id string, digest wire.Digest) (stands, known bool, err error) {
	key, packed := wire.KeyOfID(id)
	if packed {
		_, err = a.head(ctx, key)
	} else {
		_, err = a.findByKey(ctx, instrument, key, digest)
	}
	lost := errors.Is(err, objectstore.ErrNotFound)
	replaced := errors.Is(err, errReplaced) || errors.Is(err, names.ErrConflict)
	switch {
	case err == nil && !packed: // a pack proves nothing about its member
		return true, true, nil
	case err != nil && !lost && !replaced:
		return false, false, err
	}
	day, ok := wire.DayOfID(id)
	if !ok {
		return false, true, nil
	}
	r, listed, err := a.listing(ctx, instrument, day, id)
	switch {
	case err != nil:
		return false, false, err
	case !listed:
		return !lost && !replaced, !lost, nil
	case !bucket.Holds(r): // purged, or there is another one like it
		return true, true, nil
	case r.Key == key && !packed:
		return false, true, nil
	}
	err = a.verify(ctx, r)
	if errors.Is(err, objectstore.ErrNotFound) || errors.Is(err, errReplaced) {
		return false, true, nil
	}
	return err == nil, err == nil, err
}

// findByKey returns the object under its own key, whole as far as is known. Errors: as of lying,
// and of verify if it was found damaged, or stored long after it was received.
func (a *Archive) findByKey(ctx context.Context, instrument, key string, digest wire.Digest) (wire.Notice, error) {
	suspect, err := a.isDamaged(ctx, instrument, key)
	if err != nil {
		return wire.Notice{}, err
	}
	n, info, err := a.readStored(ctx, key, digest)
	if err == nil && (suspect || bucket.MayBeRewritten(info, n.ReceivedAt)) {
		err = a.verify(ctx, n.Record)
	}
	return n, err
}

// isDamaged says whether the archivist, or a feed server, found an object damaged and it has not
// been repaired.
func (a *Archive) isDamaged(ctx context.Context, instrument, id string) (bool, error) {
	d, _, err := a.readDamage(ctx, instrument, id)
	if errors.Is(err, wire.ErrMalformed) {
		return true, nil
	}
	return err == nil && d.Cause != "" && d.RepairedAt == nil, err
}

// readDamage reads the record of an object's damage as the bucket's leader has it, and its revision;
// neither if there is none.
func (a *Archive) readDamage(ctx context.Context, instrument, id string) (d wire.Damage, revision uint64, err error) {
	value, revision, err := a.newest(ctx, wire.StatusBucket(a.cfg.Site), wire.DamageKey(instrument, id))
	if err == nil && revision != 0 {
		d, err = wire.Decode[wire.Damage](value)
	}
	return d, revision, err
}

// statusBucket is asked for once.
func (a *Archive) statusBucket(ctx context.Context) (jetstream.KeyValue, error) {
	if kv := a.status.Load(); kv != nil {
		return *kv, nil
	}
	name := wire.StatusBucket(a.cfg.Site)
	kv, err := a.cfg.JetStream.KeyValue(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("%w: bucket %s: %w", stream.ErrUnavailable, name, err)
	}
	a.status.Store(&kv)
	return kv, nil
}

// reportRepaired says that the bytes of an object are there again, and asks the archivist
// to close the record of the damage.
func (a *Archive) reportRepaired(ctx context.Context, n wire.Notice) {
	a.metrics.restored.WithLabelValues(n.Instrument).Inc()
	a.cfg.Logger.Warn("restored an object from a duplicate: the store had lost it",
		"instrument", n.Instrument, "object", n.ID, "name", n.Name)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.ShortWait)
	defer cancel()
	if err := a.closeDamage(ctx, n); err != nil {
		a.cfg.Logger.Warn("cannot notify the archivist that an object is whole again: its scrub will find out",
			"instrument", n.Instrument, "object", n.ID, "error", err)
	}
}

func (a *Archive) closeDamage(ctx context.Context, n wire.Notice) error {
	d, revision, err := a.readDamage(ctx, n.Instrument, n.ID)
	if err != nil || revision == 0 {
		return err
	}
	d.RepairedAt = new(time.Now().UTC())
	value, err := wire.Encode(d)
	if err != nil {
		return err
	}
	kv, err := a.statusBucket(ctx)
	if err != nil {
		return err
	}
	_, err = kv.Update(ctx, wire.DamageKey(n.Instrument, n.ID), value, revision)
	return err
}
