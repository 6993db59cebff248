// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// listed is an object of the archive, as a golden file of a push has it.
type listed struct {
	object
	// At is the minute in which it was received.
	At         int    `json:"at,omitempty"`
	Supersedes string `json:"supersedes,omitempty"`
	// Unselected: the MirrorPartner does not select it.
	Unselected bool
}

func (l listed) pushed() plan.PushObject {
	r := l.record()
	r.Key, r.ReceivedAt = r.ID, r.ReceivedAt.Add(time.Duration(l.At)*time.Minute)
	if l.Supersedes != "" {
		first := object{Path: r.Path, Content: l.Supersedes}
		r.Supersedes = first.entry().ID
	}
	return plan.PushObject{Path: r.Path, Record: &r, Selected: !l.Unselected}
}

// pushDay is what a golden file of a push plans for: what the partner confirmed is what it had once a day was pushed as it was
// before.
type pushDay struct {
	Before []listed `json:"before,omitempty"`
	Now    []listed `json:"now,omitempty"`
	Policy plan.PushPolicy
	// Prune that the policy had before; empty: the same.
	PruneBefore plan.Prune `json:"pruneBefore,omitempty"`
	Anew        bool       `json:"anew,omitempty"`
}

// pushPlan is what a run must do.
type pushPlan struct {
	Deliver    []string `json:"deliver,omitempty"`
	Remove     []string `json:"remove,omitempty"`
	Tombstones []string `json:"tombstones,omitempty"`
	Confirmed  bool     `json:"confirmed"`
	// Copies that the partner has then, and how many objects of them the ledger counts.
	Copies int    `json:"copies"`
	Ledger uint64 `json:"ledger"`
	// Again is what the next run would do.
	Again string `json:"again,omitempty"`
}

func TestPushGolden(t *testing.T) {
	golden(t, "testdata/push/*.in.yaml", func(_ *testing.T, g pushDay) any {
		var p pushPlan
		before, now := objectsOf(g.Before), objectsOf(g.Now)
		was := g.Policy
		was.Prune = cmp.Or(g.PruneBefore, was.Prune)
		d := g.Policy.Day(now, was.Day(before, plan.PushKnown{}, false).Known, g.Anew)
		for _, i := range d.Deliver {
			p.Deliver = append(p.Deliver, nameOf(now[i]))
		}
		for _, i := range d.Remove {
			p.Remove = append(p.Remove, nameOf(now[i]))
			if g.Policy.Tombstone(now[i].Record) {
				p.Tombstones = append(p.Tombstones, nameOf(now[i]))
			}
		}
		p.Confirmed, p.Copies, p.Ledger = d.Confirmed, d.Known.Objects, d.Totals.Objects
		if again := g.Policy.Day(now, d.Known, false); len(again.Deliver)+len(again.Remove) > 0 || again.Totals.Objects != p.Ledger {
			p.Again = fmt.Sprintf("deliver %d, remove %d, the ledger counts %d", len(again.Deliver), len(again.Remove), again.Totals.Objects)
		}
		return p
	})
}

func objectsOf(all []listed) (objects []plan.PushObject) {
	for _, l := range all {
		objects = append(objects, l.pushed())
	}
	return objects
}

func nameOf(o plan.PushObject) string {
	if o.Record.State == wire.StateCurrent {
		return o.Path
	}
	return o.Path + " " + string(o.Record.State)
}

// One copy may always go, and of many the share that is allowed.
func TestMost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ percent, held, most int }{{10, 100, 10}, {10, 109, 10}, {10, 5, 1}, {10, 0, 1}, {100, 7, 7}, {0, 7, math.MaxInt}} {
		if most := (&plan.PushPolicy{SafetyStop: c.percent}).Most(c.held); most != c.most {
			t.Errorf("%+v: %d", c, most)
		}
	}
}

// Each copy is in the share of one run, and all come within 100/percent runs.
func TestShare(t *testing.T) {
	t.Parallel()
	const objects = 2000
	for percent, runs := range map[int]int{1: 100, 10: 10, 30: 4, 50: 2, 99: 2, 100: 1} {
		share, seen := plan.Share{Percent: percent}, map[int]int{}
		for run := range runs {
			n := 0
			for i := range objects {
				if share.Holds(sha256.Sum256([]byte{byte(i), byte(i >> 8)})) {
					seen[i]++
					n++
				}
			}
			if most := objects * (percent + 5) / 100; n > most {
				t.Errorf("%d percent: run %d verifies %d of %d", percent, run, n, objects)
			}
			share = share.Next()
		}
		if len(seen) != objects {
			t.Errorf("%d percent: after %d runs %d of %d are verified", percent, runs, len(seen), objects)
		}
	}
}
