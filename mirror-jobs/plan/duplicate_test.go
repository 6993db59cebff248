// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

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
	site := plan.GuestPolicy{}
	var here []*wire.Record
	for _, e := range []mirrorindex.Entry{first, second, other} {
		here = append(here, &wire.Record{Digest: e.Digest, Size: e.Size, Origin: &wire.Origin{ID: e.ID}})
	}
	if is, n := site.Unlisted([]mirrorindex.Entry{first}, here); n != 1 || is != here[2] {
		t.Errorf("%d are said to be unlisted, first %+v", n, is)
	}
	if n := (plan.Selection{}).Unlisted(merged); n != 1 {
		t.Errorf("%d lines are said to be unlisted", n)
	}
}

// The object that has the name comes in the same run that finds the one without to be a duplicate of it. It does not go before that one is here.
func TestDuplicateOfWhatComes(t *testing.T) {
	nameless := mirrorindex.Entry{ID: "o/kiruna/allsky-1/r/1", Path: "r/1", Size: 3, Digest: wire.Digest{1}}
	named := nameless
	named.ID, named.Path = "o/kiruna/allsky-1/n/1.jpg", "n/1.jpg"
	p := plan.Policy{Prune: plan.PruneWhenExpired, Retractions: plan.RetractionsTombstone}
	merged, _ := p.Merge([]plan.Line{{Entry: nameless, Held: true}}, []mirrorindex.Entry{named}, false)
	if n := (plan.Selection{}).Unlisted(merged); n != 0 || len(p.Surplus(merged)) != 0 {
		t.Errorf("%d lines are said to be unlisted, and %v go", n, p.Surplus(merged))
	}
	here := []*wire.Record{{Digest: nameless.Digest, Size: 3, Origin: &wire.Origin{ID: nameless.ID}}}
	site := plan.GuestPolicy{}
	if is, n := site.Unlisted([]mirrorindex.Entry{named}, here); n != 0 {
		t.Errorf("%d objects are said to be unlisted, first %+v", n, is)
	}
	other := named // as an origin lists it that was installed again
	other.ID = "o/kiruna/allsky-1/r/2"
	lines, _ := p.Merge([]plan.Line{{Entry: nameless, Held: true}}, []mirrorindex.Entry{other}, false)
	if _, n := site.Unlisted([]mirrorindex.Entry{other}, here); n != 1 || (plan.Selection{}).Unlisted(lines) != 1 {
		t.Errorf("beside one without a name %d and %d are said to be unlisted", n, (plan.Selection{}).Unlisted(lines))
	}
	outside := plan.Selection{ObservedFrom: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} // what has the name does not come
	site.Selection = outside
	if _, n := site.Unlisted([]mirrorindex.Entry{named}, here); n != 1 || outside.Unlisted(merged) != 1 {
		t.Errorf("outside of the selection %d and %d are said to be unlisted", n, outside.Unlisted(merged))
	}
}

// A file whose object was replaced, and is not listed for a while, goes once it is retracted.
func TestReplacedAndUnlisted(t *testing.T) {
	p := plan.Policy{Prune: plan.PruneNever, Retractions: plan.RetractionsTombstone}
	e := object{Path: "a.jpg", Became: []became{"Superseded"}}.entry()
	retracted := object{Path: "a.jpg", Became: []became{"Superseded", "Retracted"}}.entry()
	lines := []plan.Line{{Entry: e, Replaced: true}}
	for _, list := range [][]mirrorindex.Entry{nil, {retracted}} {
		lines, _ = p.Merge(lines, list, false)
		lines = p.Removed(lines)
		if len(lines) != 1 || !lines[0].Replaced {
			t.Fatalf("of %d that are listed: %+v", len(list), lines)
		}
	}
	if !p.Removes(&lines[0]) {
		t.Errorf("%+v stays", lines[0])
	}
	moved := e
	moved.Path = "b.jpg"
	if lines, _ = p.Merge([]plan.Line{{Entry: e, Replaced: true}}, []mirrorindex.Entry{moved}, false); len(lines) != 2 {
		t.Errorf("of an object that has another path: %+v", lines)
	}
}

// A copy whose file is lost is held, and is not confirmed. It is fetched once it is selected again.
func TestLostLine(t *testing.T) {
	e := object{Path: "a.jpg"}.entry()
	lines := []plan.Line{{Entry: e, Held: true, Lost: true}}
	p := plan.Policy{Prune: plan.PruneNever, Retractions: plan.RetractionsTombstone}
	lines, _ = p.Merge(lines, []mirrorindex.Entry{e}, false)
	none := plan.Selection{Wants: func(string) bool { return false }}
	if objects, _ := plan.Held(lines); objects != 1 || plan.Confirmed(lines).Count != 0 || len(none.ForInstrument("camera").Missing(lines)) != 0 {
		t.Errorf("while it is not selected: %+v, confirmed %+v", lines, plan.Confirmed(lines))
	}
	if missing := (plan.Selection{}).Missing(lines); len(missing) != 1 {
		t.Errorf("once it is selected %d are fetched", len(missing))
	}
}
