// SPDX-License-Identifier: Apache-2.0

package tree

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

// Find returns the object that is published under a path, or has it as an alias.
// Where several have the same alias, it is the first that was received. Errors:
// ErrNoPath, and those of objectstore and of manifests.
func Find(ctx context.Context, store objectstore.Store, site, path string, instruments []Instrument) (wire.Notice, error) {
	for _, c := range Candidates(site, path, instruments) {
		r, found, err := c.look(ctx, store, site)
		if err != nil {
			return wire.Notice{}, err
		}
		if found {
			return wire.Notice{Format: wire.Format, Site: site, Instrument: c.Instrument, Record: r}, nil
		}
	}
	return wire.Notice{}, fmt.Errorf("%q: %w", path, ErrNoPath)
}

func (c Candidate) look(ctx context.Context, store objectstore.Store, site string) (wire.Record, bool, error) {
	if c.Key != "" {
		return c.lookUnderKey(ctx, store)
	}
	var first wire.Record
	found := false
	for r, err := range manifest.Day(ctx, store, site, c.Instrument, c.Day) {
		if err != nil {
			return wire.Record{}, false, fmt.Errorf("instrument %s, %s: %w", c.Instrument, c.Day, err)
		}
		if (!found || before(r, first)) && c.Matches(r) {
			first, found = r, true
		}
	}
	return first, found, nil
}

func (c Candidate) lookUnderKey(ctx context.Context, store objectstore.Store) (wire.Record, bool, error) {
	info, err := store.Head(ctx, c.Key)
	if errors.Is(err, objectstore.ErrNotFound) {
		return wire.Record{}, false, nil
	}
	if err != nil {
		return wire.Record{}, false, err
	}
	n, err := wire.NoticeFromMetadata(c.Key, info.Metadata)
	if errors.Is(err, wire.ErrMalformed) {
		return wire.Record{}, false, nil // somebody else's
	}
	return n.Record, err == nil && c.Matches(n.Record), err
}

// before orders objects as they were received.
func before(a, b wire.Record) bool {
	if !a.ReceivedAt.Equal(b.ReceivedAt) {
		return a.ReceivedAt.Before(b.ReceivedAt)
	}
	return a.ID < b.ID
}
