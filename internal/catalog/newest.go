// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Newest returns the newest objects of an instrument, the newest first, at most so many:
// by observation time, else by receipt. If until is set, nothing that was observed from
// then on is returned: it is under embargo. Segments count if there is nothing else. It
// looks at no more than a month of days. Errors: those of the store and of manifests.
func (c *Catalog) Newest(ctx context.Context, instrument string, most int, until time.Time) ([]*wire.Record, error) {
	all, err := c.newestOfType(ctx, instrument, "", most, until)
	if err != nil || len(all) > 0 {
		return all, err
	}
	return c.newestOfType(ctx, instrument, wire.MediaTypeSegment, most, until)
}

func (c *Catalog) newestOfType(ctx context.Context, instrument, mediaType string, most int, until time.Time) ([]*wire.Record, error) {
	s, err := c.readSnapshot(ctx, instrument)
	if err != nil {
		return nil, err
	}
	var all []*wire.Record
	looked := 0
	for _, sum := range s.newestFirst() {
		if looked == latestDays || len(all) == most && latestIn(sum).Before(all[most-1].When()) {
			break
		}
		from, _, err := ByObserved.bounds(sum, s.fresh[sum.Day])
		if err != nil {
			return nil, err
		}
		if !until.IsZero() && !from.Before(until) {
			continue
		}
		looked++
		d, err := c.day(ctx, s, sum)
		if err != nil {
			return nil, err
		}
		for _, r := range d.Records {
			if mayBeLatest(r, mediaType) && (until.IsZero() || r.ObservedEnd().Before(until)) {
				all = append(all, r)
			}
		}
		slices.SortFunc(all, func(a, b *wire.Record) int {
			if newer(a, b) {
				return -1
			}
			return 1
		})
		all = all[:min(most, len(all)):min(most, len(all))]
	}
	return all, nil
}
