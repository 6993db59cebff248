// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/archivist/damage"
	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// originalsFor is how long what was read of a day is believed: duplicates come in
// crowds, as when a sender sends a day again.
const originalsFor = time.Minute

// originals knows whether the objects that others duplicate are really in the store, and
// whole as far as is known: only then may the duplicates go. It belongs to one goroutine.
type originals struct {
	js    jetstream.JetStream
	store objectstore.Store
	space int
	// open returns where a record of an open part has its bytes; nil if that is unknown.
	open func(of dayKey, id string) (key string, ok bool, err error)

	// ids are members that have another place than their ID says, of the day that was read last;
	// nil if none was, or if it has too many.
	ids   map[read.IDHash]struct{}
	day   dayKey
	until time.Time
}

func newOriginals(js jetstream.JetStream, store objectstore.Store, space int) *originals {
	return &originals{js: js, store: store, space: space}
}

// stays asks whether the bytes of the original of a duplicate are in the store: where its ID says,
// or, unless it was reported as damaged, in a pack of a compaction.
func (o *originals) stays(ctx context.Context, id string, duplicate wire.Notice) (bool, error) {
	r := wire.Record{ID: id, Size: duplicate.Size, Digest: duplicate.Digest}
	var packed bool
	if r.Key, packed = wire.KeyOfID(id); packed {
		r.Offset, r.Length = newOriginal(0, id).offset, duplicate.Size
	}
	if r.Key == duplicate.Key && !packed {
		return false, nil // one object under two names
	}
	sound, err := damage.Sound(ctx, o.js, o.store, duplicate.Site, duplicate.Instrument, r)
	if err != nil || sound {
		return sound, err
	}
	moved, err := o.moved(ctx, id, duplicate)
	if err != nil || !moved {
		return false, err
	}
	reported, err := damage.Reported(ctx, o.js, duplicate.Site, duplicate.Instrument, id)
	return !reported, err
}

// moved says whether an object that is not where its ID says is in a pack by now.
func (o *originals) moved(ctx context.Context, id string, duplicate wire.Notice) (bool, error) {
	of, ok := wire.DayOfID(id)
	if !ok {
		return false, nil
	}
	day := dayKey{duplicate.Instrument, of}
	if o.open != nil {
		key, listed, err := o.open(day, id)
		if err != nil {
			return false, err
		}
		if listed {
			_, err := o.store.Head(ctx, key)
			if errors.Is(err, objectstore.ErrNotFound) {
				return false, nil
			}
			return err == nil, err
		}
	}
	if o.ids != nil && o.day == day && time.Now().Before(o.until) {
		_, there := o.ids[read.HashID(id)]
		return there, nil
	}
	o.ids, o.day, o.until = nil, day, time.Now().Add(originalsFor)
	ids := make(map[read.IDHash]struct{})
	there := false
	packs := map[string]bool{}
	for r, err := range read.Day(ctx, o.store, duplicate.Site, duplicate.Instrument, of) {
		if err != nil {
			return false, err
		}
		if !r.InPack() || r.ID == wire.MemberID(r.Key, r.Offset) {
			continue
		}
		if _, asked := packs[r.Key]; !asked {
			_, err := o.store.Head(ctx, r.Key)
			if err != nil && !errors.Is(err, objectstore.ErrNotFound) {
				return false, err
			}
			packs[r.Key] = err == nil
		}
		if !packs[r.Key] {
			continue
		}
		there = there || r.ID == id
		if ids[read.HashID(r.ID)] = struct{}{}; len(ids) > o.space {
			clear(ids)
			packs = map[string]bool{r.Key: true}
			o.until = time.Time{} // each is looked for by itself
		}
	}
	if !o.until.IsZero() {
		o.ids = ids
	}
	return there, nil
}

// forget what was read: parts were closed.
func (o *originals) forget() { o.ids = nil }
