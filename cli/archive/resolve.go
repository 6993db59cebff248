// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/tree"
	"github.com/substorm/substorm/internal/wire"
)

// resolve returns the notice of an object by its key, the beginning of its
// digest, the path under which it is published, or an alias.
func resolve(ctx context.Context, b *backend.Backend, store objectstore.Store, name string, s *selection) (wire.Notice, error) {
	if digestPrefix.MatchString(name) || wire.IsOurs(name) {
		return find(ctx, store, b.Code, name, s)
	}
	if _, err := store.Head(ctx, name); err == nil {
		return find(ctx, store, b.Code, name, s) // it was imported where it lies
	} else if !errors.Is(err, objectstore.ErrNotFound) {
		return wire.Notice{}, err
	}
	if !b.KnowsJetStream() {
		return wire.Notice{}, fmt.Errorf("the bucket holds no object %q: substorm archive ls shows the keys; to look for a path or an alias, "+
			"which the registry tells, give --nats-servers", name)
	}
	js, err := b.JetStream(ctx)
	if err != nil {
		return wire.Notice{}, err
	}
	instruments, err := declared(ctx, js, b.Code, s)
	if err != nil {
		return wire.Notice{}, err
	}
	n, err := tree.Find(ctx, store, catalog.Names(js, b.Code), b.Code, name, instruments)
	if errors.Is(err, tree.ErrNoPath) {
		return wire.Notice{}, fmt.Errorf("%w of site %s: no key, no published path and no alias of %d instruments; "+
			"a new object has its paths once it is listed, within a minute: substorm archive ls -o wide shows them", err, b.Code, len(instruments))
	}
	return n, err
}

// declared are the instruments of the registry within the selection.
func declared(ctx context.Context, js jetstream.JetStream, site string, s *selection) ([]tree.Instrument, error) {
	var all []tree.Instrument
	err := eachInstrument(ctx, js, site, s, func(entry wire.InstrumentEntry) error {
		in, err := tree.OfEntry(entry)
		all = append(all, in)
		return err
	})
	return all, err
}

// eachInstrument calls f for the registry's entry of each instrument within the selection.
func eachInstrument(ctx context.Context, js jetstream.JetStream, site string, s *selection, f func(wire.InstrumentEntry) error) error {
	return backend.Entries(ctx, js, wire.RegistryBucket(site), wire.RegistryInstrumentKey("*"), func(e backend.Entry) error {
		if name, ok := wire.ParseRegistryInstrumentKey(e.Key); !ok || !s.holdsInstrument(name) {
			return nil
		}
		entry, err := wire.Decode[wire.InstrumentEntry](e.Data)
		if err != nil {
			return fmt.Errorf("registry of site %s: %s: %w", site, e.Key, err)
		}
		return f(entry)
	})
}
