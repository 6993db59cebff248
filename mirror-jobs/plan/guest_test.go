// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

const origin, by = "kiruna", "mirror from-kiruna"

// here is a record of the Site, of an object of the origin.
type here struct {
	object
	ChangedBy string `json:"changedBy,omitempty"`
	// Own: it was received here, and comes from nowhere else. Lost: the store does not have its bytes any more.
	Own  bool `json:"own,omitempty"`
	Lost bool `json:"lost,omitempty"`
}

func (h here) record() *wire.Record {
	r := h.object.record()
	if !h.Own {
		r.Origin = &wire.Origin{Site: origin, ID: r.ID, RetractedAt: r.RetractedAt}
	}
	r.ID = "here/" + r.ID
	r.Key, r.ChangedBy = r.ID, cmp.Or(h.ChangedBy, r.ChangedBy)
	return &r
}

// guestDay is what a golden file of a guest's day plans for.
type guestDay struct {
	Here        []here   `json:"here,omitempty"`
	Theirs      []object `json:"theirs,omitempty"`
	AllVersions bool     `json:"allVersions,omitempty"`
	Embargo     string   `json:"embargo,omitempty"`
	Retractions string   `json:"retractions,omitempty"`
	// Pulled are the objects that were pulled so far, and SafetyStop is the greatest share of them that may go, with those that went Before.
	Pulled     int `json:"pulled,omitempty"`
	Before     int `json:"before,omitempty"`
	SafetyStop int `json:"safetyStop,omitempty"`
	From, To   time.Time
}

// guestPlan is what a run must do.
type guestPlan struct {
	Fetch     []string `json:"fetch,omitempty"`
	Again     []string `json:"again,omitempty"`
	Missing   []string `json:"missing,omitempty"`
	Changes   []string `json:"changes,omitempty"`
	Remove    []string `json:"remove,omitempty"`
	Stop      string   `json:"stop,omitempty"`
	Supersede []string `json:"supersede,omitempty"`
	Same      int      `json:"same"`
	Kept      int      `json:"kept,omitempty"`
	Withheld  int      `json:"withheld,omitempty"`
}

func guestPlanOf(t *testing.T, g guestDay) guestPlan {
	t.Helper()
	p := plan.GuestPolicy{Selection: plan.Selection{ObservedFrom: g.From, ObservedTo: g.To}, AllVersions: g.AllVersions, Retractions: g.Retractions, By: by,
		SafetyStop: g.SafetyStop, Lost: map[string]bool{}}
	if g.Embargo != "" {
		var err error
		if p.Embargo, err = time.ParseDuration(g.Embargo); err != nil {
			t.Fatal(err)
		}
	}
	var theirs []mirrorindex.Entry
	for _, o := range g.Theirs {
		theirs = append(theirs, o.entry())
	}
	var records []*wire.Record
	for _, h := range g.Here {
		r := h.record()
		records, p.Lost[r.ID] = append(records, r), h.Lost
	}
	is := p.Day(theirs, records, time.Date(2015, 3, 18, 0, 0, 0, 0, time.UTC))
	all := guestPlan{Same: is.Same, Kept: is.Kept, Withheld: is.Withheld}
	for _, i := range is.Fetch {
		all.Fetch = append(all.Fetch, theirs[i].ID)
		if is.Again[i] {
			all.Again = append(all.Again, theirs[i].ID)
		}
	}
	for _, i := range is.Supersede {
		all.Supersede = append(all.Supersede, theirs[i].ID)
	}
	for _, r := range is.Missing {
		all.Missing = append(all.Missing, r.ID)
	}
	for _, c := range is.Changes {
		all.Changes = append(all.Changes, fmt.Sprint(c.Action, " ", c.Record.ID))
	}
	for _, c := range is.Remove {
		all.Remove = append(all.Remove, fmt.Sprint(c.Action, " ", c.Record.ID))
	}
	if err := p.Allow(len(is.Remove), g.Before, g.Pulled); err != nil {
		all.Stop = err.Error()
	}
	return all
}

func TestGuestGolden(t *testing.T) {
	golden(t, "testdata/guest/*.in.yaml", func(t *testing.T, g guestDay) any { return guestPlanOf(t, g) })
}

// Have sums up the objects here as the origin sums them up: only then can the origin tell only new objects.
func TestHave(t *testing.T) {
	objects := []object{{Path: "a.jpg"}, {Path: "b.jpg", Became: []became{"Retracted"}}, {Path: "c.jpg", Version: 2}}
	var theirs []mirrorindex.Entry
	records := []*wire.Record{{ID: "own", Path: "own.jpg", Digest: sha256.Sum256(nil), State: wire.StateCurrent}}
	for _, o := range objects {
		theirs, records = append(theirs, o.entry()), append(records, here{object: o}.record())
	}
	if have, want := plan.Have(records), mirrorindex.SumOf(theirs); !have.Same(want) || !have.Last.Equal(want.Last) {
		t.Errorf("what is here sums up to %+v, there to %+v", have, want)
	}
	records[1].State = wire.StateSuperseded
	if plan.Have(records).Same(mirrorindex.SumOf(theirs)) {
		t.Error("another state sums up to the same")
	}
}
