// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// listTries is how often the bucket is listed because a file that it listed is gone: a
// compaction came between.
const listTries = 3

// filesGone is cached instead of a day whose files, as named by the index, are missing in the bucket.
type filesGone struct{}

// listed returns what the files of a day list. If the bucket lacks one that the index names, these are the files that the
// bucket lists: in a copy of a Site index and bucket may be of different moments, and a manifest may be lost. Errors:
// manifest.ErrMissing if it lists none, and those of Day.
func (c *Catalog) listed(ctx context.Context, instrument string, sum wire.RootDay) (*Day, error) {
	d, err := c.read(ctx, instrument, sum, sum.Keys(c.cfg.Site, instrument))
	for try := 0; err == nil && d == nil && try < listTries; try++ {
		var files manifest.Files
		if files, err = manifest.List(ctx, c.cfg.Store, c.cfg.Site, instrument, sum.Day); err != nil {
			break
		}
		if len(files.InEffect) == 0 {
			err = fmt.Errorf("%d objects are listed there: %w", sum.Entries, manifest.ErrMissing)
			break
		}
		known := files.Known(sum.Day)
		known.Entries = sum.Entries
		d, err = c.read(ctx, instrument, known, files.InEffect)
	}
	if err == nil && d == nil {
		err = manifest.ErrMissing
	}
	if err != nil {
		return nil, fmt.Errorf("instrument %s, %s: %w", instrument, sum.Day, err)
	}
	return d, nil
}

// read returns what files of a day list, by their keys; nil where one of them is not in the bucket.
func (c *Catalog) read(ctx context.Context, instrument string, sum wire.RootDay, keys []string) (*Day, error) {
	of := &Day{Instrument: instrument, Day: sum.Day, Tag: tagOf(sum, "", nil)}
	v, err := c.load(ctx, keyOf(of), int64(sum.Entries)*recordCost, func(ctx context.Context) (any, int64, error) {
		err := of.read(manifest.RecordsOf(ctx, c.cfg.Store, keys), sum.Entries)
		if errors.Is(err, objectstore.ErrNotFound) {
			c.metrics.gone.Inc()
			c.cfg.Log.Error("the object store lacks a manifest file that the index of the archive names; reading the day from the files in the store",
				"instrument", instrument, "day", sum.Day, "error", err)
			return filesGone{}, emptyCost, nil
		}
		return of, of.cost, err
	})
	if err != nil {
		return nil, err
	}
	d, _ := v.(*Day)
	return d, nil
}
