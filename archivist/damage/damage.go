// SPDX-License-Identifier: Apache-2.0

// Package damage asks what is known of the damage of objects before another object, which
// is equal to one of them, is marked as a duplicate or deleted, and reports it.
package damage

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// Sound says whether the bytes of an object are in the store. If no damage of the object was reported, the store's
// metadata is believed when it says that an object of its size and digest was stored when it was received; otherwise,
// and in packs, its bytes are read. An object that was reported and cannot be read is not sound. Errors: JetStream's,
// the store's.
func Sound(ctx context.Context, js jetstream.JetStream, store objectstore.Store, site, instrument string, r wire.Record) (bool, error) {
	reported, err := Reported(ctx, js, site, instrument, r.ID)
	if err != nil {
		return false, err
	}
	if !reported && !r.InPack() {
		if stands, err := asStored(ctx, store, r); err != nil || stands {
			return stands, err
		}
	}
	err = bucket.Verify(ctx, store, r, nil)
	if reported || errors.Is(err, bucket.ErrMissing) || errors.Is(err, objectpath.ErrDamaged) {
		return err == nil, ctx.Err()
	}
	return err == nil, err
}

// Reported says whether damage of an object was reported. Errors: JetStream's.
func Reported(ctx context.Context, js jetstream.JetStream, site, instrument, id string) (bool, error) {
	status := wire.StatusBucket(site)
	_, _, err := stream.Newest(ctx, js, status, wire.DamageKey(instrument, id))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("bucket %s: %w", status, err)
	}
	return true, nil
}

// Reports are all reports of damage of a Site, as of one moment.
type Reports struct {
	objects map[string]bool // by the key of the report
	places  map[string]bool
}

// ReadReports reads them. Errors: JetStream's.
func ReadReports(ctx context.Context, js jetstream.JetStream, site string) (Reports, error) {
	is := Reports{objects: map[string]bool{}, places: map[string]bool{}}
	return is, stream.EntriesOf(ctx, js, wire.StatusBucket(site), wire.DamageKeys, func(e jetstream.KeyValueEntry) error {
		is.objects[e.Key()] = true
		if d, err := wire.Decode[wire.Damage](e.Value()); err == nil { // else its key says enough of the object
			is.places[d.Key] = true
		}
		return nil
	})
}

// Concern says whether damage was reported of an object, or of something else in the object of the
// store that holds it: the number of reports kept per instrument is limited.
func (r Reports) Concern(instrument, id, place string) bool {
	return r.objects[wire.DamageKey(instrument, id)] || r.places[place]
}

// asStored says, by its metadata, whether the object under a record's key is as it was stored at its
// receipt.
func asStored(ctx context.Context, store objectstore.Store, r wire.Record) (bool, error) {
	info, err := store.Head(ctx, r.Key)
	if err != nil {
		if errors.Is(err, objectstore.ErrNotFound) {
			err = nil
		}
		return false, err
	}
	n, err := wire.NoticeFromMetadata(r.Key, info.Metadata)
	return err == nil && n.Digest == r.Digest && info.Size == r.Size && !bucket.MayBeRewritten(info, n.ReceivedAt), nil
}

// Report reports damage that was not reported before, for the scrub to confirm. Errors:
// JetStream's.
func Report(ctx context.Context, js jetstream.JetStream, site string, damages ...wire.Damage) error {
	bucket := wire.StatusBucket(site)
	kv, err := js.KeyValue(ctx, bucket)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", bucket, err)
	}
	for _, d := range damages {
		value, err := wire.Encode(d)
		if err != nil {
			return err
		}
		key := wire.DamageKey(d.Instrument, d.ID)
		if _, err := kv.Create(ctx, key, value); err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
			return fmt.Errorf("write %s of %s: %w", key, bucket, err)
		}
	}
	return nil
}
