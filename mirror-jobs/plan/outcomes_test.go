// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// outcomes are all that can become of an object that a mirror has a copy of.
var outcomes = []object{
	{}, {Became: []became{"Superseded"}}, {Became: []became{"Retracted"}}, {Became: []became{"Retracted", "Restored"}}, {Became: []became{"Purged"}},
	{Became: []became{"Retracted", "Purged"}}, {Became: []became{"Expired"}}, {Became: []became{"Superseded", "Expired"}}, {Became: []became{"Retracted", "Expired"}},
	{Became: []became{"Retracted", "Restored", "Expired"}}, {Became: []became{"Expired", "Purged"}},
	{Became: []became{"Retracted"}, NoCause: true}, {Became: []became{"Purged"}, NoCause: true}, {Became: []became{"Expired"}, NoCause: true},
}

// mover says what a mirror does with its copy of an object.
type mover struct {
	name string
	does func(object) string
}

// pullsIntoSite has the archivist of a Site asked for changes of a copy that became something here.
func pullsIntoSite(retractions string, copy ...became) mover {
	name := "site pull, " + retractions
	if len(copy) > 0 {
		name += fmt.Sprintf(", copy is %s", copy[0])
	}
	return mover{name, func(o object) string {
		p := plan.GuestPolicy{Retractions: retractions, By: by}
		h := here{object: object{Path: o.Path, Became: copy}}
		if len(copy) > 0 {
			h.ChangedBy = by
		}
		is := p.Day([]mirrorindex.Entry{o.entry()}, []*wire.Record{h.record()}, time.Date(2015, 4, 1, 0, 0, 0, 0, time.UTC))
		var all []string
		for _, c := range append(is.Changes, is.Remove...) {
			all = append(all, string(c.Action))
		}
		if len(is.Fetch) > 0 {
			all = append(all, "Fetch")
		}
		return strings.Join(all, ", ")
	}}
}

// pullsIntoFolder removes or fetches the copy of an object that was listed as having become something.
func pullsIntoFolder(prune plan.Prune, retractions plan.Retractions, copy ...became) mover {
	name := fmt.Sprintf("folder pull, %s, %s", prune, retractions)
	if len(copy) > 0 {
		name += fmt.Sprintf(", copy is %s", copy[0])
	}
	return mover{name, func(o object) string {
		ours := o
		ours.NoCause = false
		policy := plan.Policy{Prune: prune, Retractions: retractions}
		ours.Became = copy
		held := len(copy) == 0 || retractions == plan.RetractionsIgnore
		lines, _ := policy.Merge([]plan.Line{{Entry: ours.entry(), Held: held}}, []mirrorindex.Entry{o.entry()}, false)
		switch {
		case len(policy.Surplus(lines)) > 0:
			return "Remove"
		case len(plan.Selection{}.Missing(lines)) > 0:
			return "Fetch"
		}
		return ""
	}}
}

func pushes(prune plan.Prune, retractions string) mover {
	return mover{fmt.Sprintf("push, %s, %s", prune, retractions), func(o object) string {
		if o.NoCause {
			return "" // a push reads manifests
		}
		p := plan.PushPolicy{Prune: prune, Retractions: retractions}
		before, now := listed{object: object{Path: o.Path}}.pushed(), listed{object: o}.pushed()
		d := p.Day([]plan.PushObject{now}, p.Day([]plan.PushObject{before}, plan.PushKnown{}, false).Known, false)
		switch {
		case len(d.Remove) > 0 && p.Tombstone(now.Record):
			return "Tombstone"
		case len(d.Remove) > 0:
			return "Remove"
		case len(d.Deliver) > 0:
			return "Deliver"
		default:
			return ""
		}
	}}
}

// The table says for each outcome, mover and policy what becomes of a copy: an empty cell leaves it as it is.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	movers := []mover{
		pullsIntoSite(wire.MirrorTombstone), pullsIntoSite(wire.MirrorDelete), pullsIntoSite(wire.MirrorIgnore),
		pullsIntoSite(wire.MirrorTombstone, "Retracted"), pullsIntoSite(wire.MirrorTombstone, "Purged"),
		pullsIntoSite(wire.MirrorIgnore, "Retracted"),
		pullsIntoFolder(plan.PruneNever, plan.RetractionsTombstone, "Retracted"), pullsIntoFolder(plan.PruneNever, plan.RetractionsTombstone, "Purged"),
	}
	for _, prune := range []plan.Prune{plan.PruneNever, plan.PruneWhenExpired} {
		movers = append(movers, pullsIntoFolder(prune, plan.RetractionsTombstone), pullsIntoFolder(prune, plan.RetractionsIgnore),
			pushes(prune, wire.MirrorTombstone), pushes(prune, wire.MirrorDelete), pushes(prune, wire.MirrorIgnore))
	}
	var table strings.Builder
	for _, m := range movers {
		fmt.Fprintf(&table, "%s\n", m.name)
		for _, o := range outcomes {
			o.Path = "a.jpg"
			name := strings.Trim(strings.ReplaceAll(fmt.Sprint(o.Became), " ", ", "), "[]")
			if name == "" {
				name = "Current"
			}
			if o.NoCause {
				name += " (index without cause)"
			}
			fmt.Fprintln(&table, strings.TrimRight(fmt.Sprintf("    %-34s %s", name, m.does(o)), " "))
		}
	}
	const file = "testdata/outcomes.txt"
	if *update {
		if err := os.WriteFile(file, []byte(table.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), table.String()); diff != "" {
		t.Errorf("(-want +got; -update writes it)\n%s", diff)
	}
}
