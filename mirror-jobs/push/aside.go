// SPDX-License-Identifier: Apache-2.0

package push

import (
	"context"
	"errors"

	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// A copy takes the place of that of the version before. If that version had expired here before its name was used again, its copy may be the
// last one: it stays under another name, which its digest tells.

// asideSuffix is what is added to the name of such a copy.
func asideSuffix(record *wire.Record) string {
	const digits = 16 // of the digest
	return "~" + record.Digest.String()[:digits]
}

// aside is the File.Aside of an object; empty where all that may lie at its path is its own copy, or that of the version which it supersedes.
func (r *run) aside(ctx context.Context, d *pushed, o *plan.PushObject) (string, error) {
	isConfirmed := d.known.Count > 0 && !o.Record.ReceivedAt.After(d.known.Last)
	if isConfirmed || o.Record.Version <= 1 || o.Record.State != wire.StateCurrent {
		return "", nil
	}
	versions, err := r.Catalog.Versions(ctx, d.in.Instrument, o.Path)
	if err != nil && !errors.Is(err, catalog.ErrNotFound) {
		return "", err
	}
	for i := range versions {
		if v := &versions[i]; max(1, v.Version) == o.Record.Version-1 && expiredBefore(v, o.Record) && r.policy.Keeps(v) {
			return asideSuffix(v), nil
		}
	}
	return "", nil
}

// expiredBefore says whether a version had expired when the next one was received: it was never superseded.
func expiredBefore(v, next *wire.Record) bool {
	return v.Expired() && v.PurgedAt != nil && v.PurgedAt.Before(next.ReceivedAt)
}
