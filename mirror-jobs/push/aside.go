// SPDX-License-Identifier: Apache-2.0

package push

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// A copy replaces the copy of the previous version. If that version had expired here before its name was used again, its copy may be the
// last one: it stays under another name, which contains its digest. Only the partner knows which version's copy it has: versions may have
// come and expired since the last run.

// maxEarlier bounds of how many versions of a name a run asks the partner.
const maxEarlier = 64

// asideSuffix is what is added to the name of such a copy.
func asideSuffix(record *wire.Record) string {
	const digits = 16 // of the digest
	return "~" + record.Digest.String()[:digits]
}

// candidates are an object and the versions of its name before it, the newest first, if the copy of one of them may be the last one.
func (r *run) candidates(ctx context.Context, d *pushed, o *plan.PushObject) (earlier []*wire.Record, err error) {
	if o.Record.Version <= 1 || o.Record.State != wire.StateCurrent {
		return nil, nil
	}
	versions, err := r.Catalog.Versions(ctx, d.in.Instrument, o.Path)
	if err != nil && !errors.Is(err, catalog.ErrNotFound) {
		return nil, err
	}
	for i := range versions {
		if v := &versions[i]; v.Version < o.Record.Version {
			earlier = append(earlier, v)
		}
	}
	slices.SortFunc(earlier, func(a, b *wire.Record) int { return cmp.Compare(b.Version, a.Version) })
	earlier = earlier[:min(len(earlier), maxEarlier)]
	if !slices.ContainsFunc(earlier, r.isLast) {
		return nil, nil
	}
	return append([]*wire.Record{o.Record}, earlier...), nil // the partner may have that one already
}

// isLast says whether a copy of an object at the partner may be the last one.
func (r *run) isLast(v *wire.Record) bool { return v.Expired() && r.policy.Keeps(v) }

// setAside has those files set a last copy aside in whose place the partner has one, by size and time: another version may have come since, or
// an earlier run may have set it aside.
func (r *run) setAside(ctx context.Context, files []File) error {
	var open []int
	for i := range files {
		if len(files[i].candidates) > 0 {
			open = append(open, i)
		}
	}
	for n := 0; len(open) > 0; n++ {
		differ, err := r.differ(ctx, files, open, n)
		if err != nil {
			return err
		}
		var still []int
		for k, i := range open {
			switch lies := files[i].candidates[n]; {
			case differ[k]:
				if n+1 < len(files[i].candidates) {
					still = append(still, i)
				}
			case r.isLast(lies):
				files[i].Aside = asideSuffix(lies)
			}
		}
		open = still
		if n == 0 && len(open) > 0 { // else nothing lies there, as at a new partner
			if open, err = r.present(ctx, files, open); err != nil {
				return err
			}
		}
	}
	return nil
}

// differ says of some files, by index, whether what the partner has in their place is no copy of the n-th candidate.
func (r *run) differ(ctx context.Context, files []File, some []int, n int) ([]bool, error) {
	copies, differ := make([]File, len(some)), make([]bool, len(some))
	for k, i := range some {
		copies[k] = gone{path: files[i].Path, record: files[i].candidates[n]}.file()
	}
	return differ, r.Mover.Verify(ctx, copies, false, func(k int, _ string) { differ[k] = true })
}

// present returns those of some files, by index, in whose place the partner has one.
func (r *run) present(ctx context.Context, files []File, some []int) (present []int, err error) {
	paths := make([]string, len(some))
	for k, i := range some {
		paths[k] = files[i].Path
	}
	there, err := r.Mover.Has(ctx, paths)
	has := make(map[string]bool, len(there))
	for _, path := range there {
		has[path] = true
	}
	for _, i := range some {
		if has[files[i].Path] {
			present = append(present, i)
		}
	}
	return present, err
}
