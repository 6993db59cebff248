// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"maps"
	"slices"

	"github.com/substorm/substorm/internal/wire"
)

// typesDays is at how many days Types looks.
const typesDays = 2

// Types returns the media types that the newest days of an instrument hold, in no order; segments excluded. Errors: ctx's, those of the
// store and of manifests.
func (c *Catalog) Types(ctx context.Context, instrument string) ([]string, error) {
	if err := c.await(ctx); err != nil {
		return nil, err
	}
	var types []string
	var known bool
	n, generation := c.peek(instrument, func(n *newest) {
		types, known = slices.Collect(maps.Keys(n.types)), n.types != nil
	})
	if n == nil || known {
		return types, nil
	}
	found, err := c.lookForTypes(ctx, instrument)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.generation != generation {
		return slices.Collect(maps.Keys(found)), nil
	}
	if n.types == nil {
		n.types = make(map[string]struct{}, len(found))
	}
	for mediaType := range found {
		n.types[mediaType] = struct{}{}
	}
	for mediaType := range n.heard {
		n.types[mediaType] = struct{}{}
	}
	delete(n.types, "")
	delete(n.types, wire.MediaTypeSegment)
	return slices.Collect(maps.Keys(n.types)), nil
}

func (c *Catalog) lookForTypes(ctx context.Context, instrument string) (map[string]struct{}, error) {
	s, err := c.readSnapshot(ctx, instrument)
	if err != nil {
		return nil, err
	}
	found, days := make(map[string]struct{}), 0
	for _, sum := range s.newestFirst() {
		d, err := c.day(ctx, s, sum)
		if err != nil {
			return nil, err
		}
		some := false
		for _, r := range d.Records {
			if mayBeLatest(r, "") {
				some = true
				if len(found) < maxTypes {
					found[r.MediaType] = struct{}{}
				}
			}
		}
		if some {
			days++
		}
		if days == typesDays {
			break
		}
	}
	return found, nil
}
