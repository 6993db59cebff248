// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// nextVersion returns the least number that a new version of a day may have: greater
// than what the index knows, for by the number it tells files apart, and the files
// that it knows may be gone.
func (r *rebuild) nextVersion(ctx context.Context, of bucket.List) (int, error) {
	next := 1
	learn := func(days []wire.RootDay) {
		for _, d := range days {
			if d.Day == of.Day {
				next = max(next, d.Version+1)
			}
		}
	}
	for info, err := range r.store.List(ctx, wire.RootPrefix(r.site, of.Instrument), "") {
		if err != nil {
			return 0, err
		}
		_, _, number, err := wire.ParseRootKey(info.Key)
		if err != nil {
			continue
		}
		root, err := manifest.ReadRoot(ctx, r.store, r.site, of.Instrument, number)
		if errors.Is(err, objectstore.ErrNotFound) || errors.Is(err, wire.ErrMalformed) {
			continue
		}
		if err != nil {
			return 0, err
		}
		learn(root.Days)
	}
	entry, err := r.index.entry(ctx, of.Instrument)
	learn(entry.Open)
	return next, err
}

// index is the Site's list of days, which readers go by.
type index struct {
	js   jetstream.JetStream
	site string
}

// entry returns what the index knows of an instrument; nothing where there is none.
func (i *index) entry(ctx context.Context, instrument string) (wire.IndexEntry, error) {
	if i == nil {
		return wire.IndexEntry{}, nil
	}
	kv, err := i.js.KeyValue(ctx, wire.IndexBucket(i.site))
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return wire.IndexEntry{}, nil
	}
	if err != nil {
		return wire.IndexEntry{}, fmt.Errorf("index of site %s: %w", i.site, err)
	}
	e, err := kv.Get(ctx, instrument)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return wire.IndexEntry{}, nil
	}
	if err != nil {
		return wire.IndexEntry{}, fmt.Errorf("index of site %s: %w", i.site, err)
	}
	entry, err := wire.Decode[wire.IndexEntry](e.Value())
	if errors.Is(err, wire.ErrMalformed) {
		return wire.IndexEntry{}, nil // it is made anew
	}
	return entry, err
}

// forget says that the index does not know all: a gateway makes it anew.
func (i *index) forget(ctx context.Context, notes io.Writer) error {
	if i == nil {
		_, err := fmt.Fprintln(notes, "JetStream is not known (--nats-servers): readers over HTTP see the new manifests once the index is made anew. "+
			"Delete the key "+wire.IndexListedKey+" of the key-value bucket of the Site's index for that")
		return err
	}
	kv, err := i.js.KeyValue(ctx, wire.IndexBucket(i.site))
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil
	}
	if err == nil {
		err = kv.Delete(ctx, wire.IndexListedKey)
	}
	if err != nil {
		return fmt.Errorf("the manifests are made anew, and the index could not be told: delete key %s of bucket %s: %w",
			wire.IndexListedKey, wire.IndexBucket(i.site), err)
	}
	return nil
}
