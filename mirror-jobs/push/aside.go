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

// lastCopy is the newest version of an object's name that expired, and whose copy may be the last one; nil where there is none.
func (r *run) lastCopy(ctx context.Context, d *pushed, o *plan.PushObject) (last *wire.Record, err error) {
	if o.Record.Version <= 1 || o.Record.State != wire.StateCurrent {
		return nil, nil
	}
	versions, err := r.Catalog.Versions(ctx, d.in.Instrument, o.Path)
	if err != nil && !errors.Is(err, catalog.ErrNotFound) {
		return nil, err
	}
	for i := range versions {
		v := &versions[i]
		if v.Expired() && v.Version < o.Record.Version && r.policy.Keeps(v) && (last == nil || v.Version > last.Version) {
			last = v
		}
	}
	return last, nil
}

// setAside has those files set a last copy aside in whose place the partner has one, by size and time: another version may have come since, or
// an earlier run may have set it aside.
func (r *run) setAside(ctx context.Context, files []File) error {
	var copies []File
	var of []int
	for i := range files {
		if last := files[i].lastCopy; last != nil {
			copies, of = append(copies, gone{path: files[i].Path, record: last}.file()), append(of, i)
		}
	}
	if len(copies) == 0 {
		return nil
	}
	others := make([]bool, len(copies))
	if err := r.Mover.Verify(ctx, copies, false, func(i int, _ string) { others[i] = true }); err != nil {
		return err
	}
	for i, other := range others {
		if !other {
			files[of[i]].Aside = asideSuffix(files[of[i]].lastCopy)
		}
	}
	return nil
}
