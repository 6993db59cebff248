// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/substorm/substorm/internal/wire"
)

// at returns the objects of a path, those of the newest days first; where enough says
// so of one, older days are not asked.
func (c *Catalog) at(ctx context.Context, instrument, path string, enough func(*wire.Record) bool) ([]*wire.Record, error) {
	s, err := c.readSnapshot(ctx, instrument)
	if err != nil {
		return nil, err
	}
	var all []*wire.Record
	for _, sum := range s.holding(path) {
		d, err := c.day(ctx, s, sum)
		if err != nil {
			return nil, err
		}
		found := d.at(path)
		all = append(all, found...)
		if slices.ContainsFunc(found, enough) {
			break
		}
	}
	return all, nil
}

// Find returns the object that is published under a path: the current one of several
// versions. If there is none any more, it returns the last that was retracted or purged,
// and its State says so. Errors: ErrNotFound, those of the store and of manifests.
func (c *Catalog) Find(ctx context.Context, instrument, path string) (wire.Record, error) {
	all, err := c.at(ctx, instrument, path, func(r *wire.Record) bool { return r.State == wire.StateCurrent })
	if err != nil {
		return wire.Record{}, err
	}
	if len(all) == 0 {
		return wire.Record{}, fmt.Errorf("%s of instrument %s: %w", path, instrument, ErrNotFound)
	}
	rank := func(r *wire.Record) int {
		switch r.State {
		case wire.StateCurrent:
			return 2
		case wire.StateSuperseded:
			return 0
		default:
			return 1
		}
	}
	best := slices.MaxFunc(all, func(a, b *wire.Record) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), older(a, b)) })
	return *best, nil
}

// Versions returns all objects that are or were published under a path, the oldest
// first. Errors: as Find.
func (c *Catalog) Versions(ctx context.Context, instrument, path string) ([]wire.Record, error) {
	all, err := c.at(ctx, instrument, path, func(*wire.Record) bool { return false })
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s of instrument %s: %w", path, instrument, ErrNotFound)
	}
	slices.SortFunc(all, older)
	records := make([]wire.Record, len(all))
	for i, r := range all {
		records[i] = *r
	}
	return records, nil
}
