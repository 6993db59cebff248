// SPDX-License-Identifier: Apache-2.0

package objectpath

import (
	"context"
	"errors"
	"fmt"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// ErrNoPath: no object has the path, or none that is listed yet.
var ErrNoPath = errors.New("no object has this path")

// Names returns the claim of the objects of an instrument that have a name, and false if none has it.
type Names func(ctx context.Context, instrument, name string) (wire.NameClaim, bool, error)

// Find returns the object that is published under a path, or has it as an alias. If
// several have the same alias, it is the first that was received; of the versions of one
// name it is the newest. Without names, which may be nil, small objects that were packed
// are not found by their names alone. Errors: ErrNoPath, and those of objectstore and of
// manifests.
func Find(ctx context.Context, store objectstore.Store, names Names, site, path string, instruments []Instrument) (wire.Notice, error) {
	for _, c := range Candidates(path, instruments) {
		r, found, err := c.look(ctx, store, names, site)
		if err != nil {
			return wire.Notice{}, err
		}
		if found {
			return wire.Notice{Site: site, Instrument: c.Instrument, Record: r}, nil
		}
	}
	return wire.Notice{}, fmt.Errorf("%q: %w", path, ErrNoPath)
}

func (c Candidate) look(ctx context.Context, store objectstore.Store, names Names, site string) (found wire.Record, ok bool, err error) {
	if c.Name != "" {
		if names != nil {
			if found, ok, err = c.lookForClaim(ctx, store, names, site); ok || err != nil {
				return found, ok, err
			}
		}
		return c.lookForName(ctx, store, site)
	}
	for r, err := range manifest.Day(ctx, store, site, c.Instrument, c.Day) {
		if err != nil {
			return wire.Record{}, false, fmt.Errorf("instrument %s, %s: %w", c.Instrument, c.Day, err)
		}
		if (!ok || (wire.ByReceipt(&r, &found) < 0) != c.Newest) && c.Matches(&r) {
			found, ok = r, true
		}
	}
	return found, ok, nil
}

// lookForClaim looks for the newest version in the manifest of its day, for it may
// lie in a pack. One that is not listed yet lies under its key.
func (c Candidate) lookForClaim(ctx context.Context, store objectstore.Store, names Names, site string) (wire.Record, bool, error) {
	claim, known, err := names(ctx, c.Instrument, c.Name)
	latest, has := claim.Latest()
	if err != nil || !known || !has {
		return wire.Record{}, false, err
	}
	for r, err := range manifest.Day(ctx, store, site, c.Instrument, wire.DayOf(latest.ReceivedAt)) {
		if err != nil {
			return wire.Record{}, false, fmt.Errorf("instrument %s: name %q: %w", c.Instrument, c.Name, err)
		}
		if r.Name == c.Name && r.Digest == latest.Digest && c.Matches(&r) {
			return r, true, nil
		}
	}
	return wire.Record{}, false, nil
}

// lookForName asks for one version after the other.
func (c Candidate) lookForName(ctx context.Context, store objectstore.Store, site string) (found wire.Record, ok bool, err error) {
	for version := 1; ; version++ {
		key := wire.NamedKey(site, c.Instrument, c.Name, version)
		if wire.CheckKey(key) != nil {
			return found, ok, nil
		}
		info, err := store.Head(ctx, key)
		if errors.Is(err, objectstore.ErrNotFound) {
			return found, ok, nil
		}
		if err != nil {
			return wire.Record{}, false, err
		}
		n, err := wire.NoticeFromMetadata(key, info.Metadata)
		if err != nil && !errors.Is(err, wire.ErrMalformed) { // who wrote it may not be us
			return wire.Record{}, false, err
		}
		if err == nil && c.Matches(&n.Record) {
			found, ok = n.Record, true
		}
	}
}
