// SPDX-License-Identifier: Apache-2.0

package push

import (
	"context"
	"errors"

	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// A copy takes the place of that of the version before. What else has its path at the partner may be the last copy of something: of an object
// that expired here before its name was used again, or of one that this Site does not list any more since it was installed again under its
// code, or restored from an older backup. It stays under another name.

// asideTime is how the time of a run is written behind such a name: no later run uses the same one.
const asideTime = "~20060102T150405Z"

// aside is the File.Aside of an object; empty where all that may lie at its path is the copy of the version before, or its own.
func (r *run) aside(ctx context.Context, d *pushed, o *plan.PushObject) (string, error) {
	record := o.Record
	isConfirmed := d.known.Count > 0 && !record.ReceivedAt.After(d.known.Last)
	if isConfirmed || record.Name == "" && record.Path == "" { // the path is made of its digest
		return "", nil
	}
	suffix := r.now.UTC().Format(asideTime)
	if record.Version <= 1 {
		return suffix, nil
	}
	versions, err := r.Catalog.Versions(ctx, d.in.Instrument, o.Path)
	if errors.Is(err, catalog.ErrNotFound) {
		return "", nil
	}
	for i := range versions {
		if v := &versions[i]; max(1, v.Version) == record.Version-1 && expiredBefore(v, record) {
			return suffix, err
		}
	}
	return "", err
}

// expiredBefore says whether a version had expired when the next one was received: it was never superseded.
func expiredBefore(v, next *wire.Record) bool {
	return v.Expired() && v.PurgedAt != nil && v.PurgedAt.Before(next.ReceivedAt)
}
