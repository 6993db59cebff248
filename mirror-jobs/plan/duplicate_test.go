// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// An object that its Site found to be a duplicate of another one vanishes from the list. Its bytes are listed, so the Site did not go back.
func TestDuplicateVanishes(t *testing.T) {
	first := mirrorindex.Entry{ID: "o/1", Path: "1.jpg", Size: 3, Digest: wire.Digest{1}}
	second := first
	second.ID, second.Path = "o/2", "2.jpg"
	other := mirrorindex.Entry{ID: "o/3", Path: "3.jpg", Size: 3, Digest: wire.Digest{3}}
	lines := []plan.Line{{Entry: first, Held: true}, {Entry: second, Held: true}, {Entry: other, Held: true}}
	p := plan.Policy{Prune: plan.PruneNever, Retractions: plan.RetractionsTombstone}
	merged, _ := p.Merge(lines, []mirrorindex.Entry{first}, false)
	for _, l := range merged {
		wantMoved := l.ID == second.ID
		if wantGone := l.ID != first.ID; l.Gone != wantGone || l.Moved != wantMoved || !l.Held {
			t.Errorf("%s: %+v", l.ID, l)
		}
	}
	var here []*wire.Record
	for _, e := range []mirrorindex.Entry{first, second, other} {
		here = append(here, &wire.Record{Digest: e.Digest, Size: e.Size, Origin: &wire.Origin{ID: e.ID}})
	}
	if is, n := plan.Unlisted([]mirrorindex.Entry{first}, here); n != 1 || is != here[2] {
		t.Errorf("%d are said to be unlisted, first %+v", n, is)
	}
}
