// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// TestOutcomes is about one change. In the tests below an object changes up to four times, a mirror runs after some of the changes, and
// the origin is restored from a backup of any time, once or twice. A copy that a mirror hides stays hidden until the object is restored
// at the origin.

// copyHere is a mirror's copy of the one object of a day.
type copyHere interface {
	// run makes a run that is given what the origin lists.
	run(list []mirrorindex.Entry)
	// readable says whether the mirror serves the copy, and was whether it keeps in mind that there was one.
	readable() bool
	was() bool
	// reverted counts the retractions and purges that the mirror said the origin does not list any more.
	reverted() int
}

// folderCopy is one in a folder.
type folderCopy struct {
	plan.Policy
	lines []plan.Line
	kept  int
}

func (c *folderCopy) run(list []mirrorindex.Entry) {
	if !plan.SumOf(c.lines).Same(mirrorindex.SumOf(list)) { // else the origin says that nothing is new
		var kept int
		c.lines, kept = c.Merge(c.lines, list, false)
		c.kept += kept
	}
	c.lines = c.Removed(c.lines)
	for _, i := range (plan.Selection{}).Missing(c.lines) {
		c.lines[i].Held = true
	}
}

func (c *folderCopy) readable() bool {
	objects, _ := plan.Held(c.lines)
	return objects > 0
}

func (c *folderCopy) was() bool { return true }

func (c *folderCopy) reverted() int { return c.kept }

// siteCopy is one in the archive of a Site, whose archivist does what a run asks for before the next one begins.
type siteCopy struct {
	plan.GuestPolicy
	here []*wire.Record
	at   time.Time
	kept int
}

func (c *siteCopy) run(list []mirrorindex.Entry) {
	c.at = c.at.Add(time.Minute)
	if plan.Have(c.here).Same(mirrorindex.SumOf(list)) {
		list = nil
	}
	is := c.Day(list, c.here, c.at)
	c.kept += is.Kept
	for _, change := range slices.Concat(is.Changes, is.Remove) {
		r := change.Record
		switch change.Action {
		case wire.ActionRetract:
			r.Retract(change.Reason, c.By, c.at)
		case wire.ActionPurge:
			r.Purge(change.Reason, c.By, c.at)
		case wire.ActionRestore:
			r.Restore(change.Reason, c.By, c.at, false)
		case wire.ActionSupersede:
			r.Supersede()
		}
		if change.RetractedAt != nil {
			r.Origin.RetractedAt = change.RetractedAt
		}
	}
	for _, i := range is.Fetch {
		e := list[i]
		r := &wire.Record{ID: "here/" + e.ID, Path: e.Path, Size: e.Size, Digest: e.Digest, ReceivedAt: e.ReceivedAt, State: wire.StateCurrent}
		r.Origin = &wire.Origin{Site: origin, ID: e.ID}
		c.here = append(c.here, r)
	}
}

func (c *siteCopy) readable() bool {
	return slices.ContainsFunc(c.here, func(r *wire.Record) bool { return r.State == wire.StateCurrent || r.State == wire.StateSuperseded })
}

func (c *siteCopy) was() bool { return len(c.here) > 0 }

func (c *siteCopy) reverted() int { return c.kept }

// history is what became of an object at its origin, and what the origin listed after each change; first, before any.
type history struct {
	became []became
	lists  [][]mirrorindex.Entry
}

// hidden says whether the object is retracted or purged by request after some changes.
func (h *history) hidden(after int) bool { return h.lists[after][0].Removed() }

// histories are all of up to so many changes that an archivist makes.
func histories(most int) (all []history) {
	var extend func(h history, r wire.Record)
	extend = func(h history, r wire.Record) {
		h.lists = append(slices.Clip(h.lists), []mirrorindex.Entry{mirrorindex.EntryOf("a.jpg", &r)})
		all = append(all, h)
		if len(h.became) == most {
			return
		}
		for _, b := range []became{"Superseded", "Retracted", "Restored", "Purged", "Expired"} {
			possible := map[became]bool{
				"Superseded": r.State == wire.StateCurrent,
				"Retracted":  r.State == wire.StateCurrent || r.State == wire.StateSuperseded,
				"Restored":   r.State == wire.StateRetracted,
				"Purged":     r.State != wire.StatePurged || r.Expired(),
				"Expired":    r.State != wire.StatePurged,
			}
			if !possible[b] {
				continue
			}
			next := r
			b.apply(&next, r.ReceivedAt.Add(time.Duration(len(h.became)+1)*time.Hour))
			extend(history{append(slices.Clip(h.became), b), h.lists}, next)
		}
	}
	extend(history{}, object{Path: "a.jpg"}.record())
	return all
}

// copies returns a new mirror of each kind that follows retractions.
func copies() map[string]copyHere {
	all := map[string]copyHere{}
	for _, prune := range []plan.Prune{plan.PruneNever, plan.PruneWhenExpired} {
		all["folder, "+string(prune)] = &folderCopy{Policy: plan.Policy{Prune: prune, Retractions: plan.RetractionsTombstone}}
	}
	for _, retractions := range []string{wire.MirrorTombstone, wire.MirrorDelete} {
		all["Site, "+retractions] = &siteCopy{GuestPolicy: plan.GuestPolicy{By: by, Retractions: retractions, SafetyStop: 100}, at: time.Date(2015, 4, 1, 0, 0, 0, 0, time.UTC)}
	}
	return all
}

// runsOf are the times of a history after which a mirror runs; bit i of runs is that after i changes. It always runs after the last.
func runsOf(h *history, runs int) (after []int) {
	for i := range h.lists {
		if runs&(1<<i) != 0 || i == len(h.lists)-1 {
			after = append(after, i)
		}
	}
	return after
}

// eachSequence calls a function for each history, and each choice of runs of a mirror.
func eachSequence(t *testing.T, most int, do func(h *history, after []int, name string, c copyHere)) {
	n := 0
	for _, h := range histories(most) {
		for runs := range 1 << (len(h.lists) - 1) {
			after := runsOf(&h, runs)
			for name, c := range copies() {
				for _, i := range after {
					c.run(h.lists[i])
				}
				do(&h, after, name, c)
				n++
			}
		}
	}
	if n < 400 {
		t.Fatalf("%d sequences", n)
	}
}

// A copy is hidden where the object was retracted or purged at last, and readable where it is current, whichever changes the mirror saw.
func TestSequences(t *testing.T) {
	t.Parallel()
	eachSequence(t, 4, func(h *history, after []int, name string, c copyHere) {
		last := h.lists[len(h.lists)-1][0]
		wasPurged := strings.HasPrefix(name, "Site, Delete") && slices.ContainsFunc(after, h.hidden)
		if h.hidden(len(h.became)) && c.readable() || last.Is() == wire.StateCurrent && !c.readable() && !wasPurged {
			t.Errorf("%s: after %v with runs after %v, the copy is readable: %t", name, h.became, after, c.readable())
		}
		if c.reverted() > 0 {
			t.Errorf("%s: after %v with runs after %v, the origin is said to have been restored from a backup", name, h.became, after)
		}
	})
}

// The origin is restored from a backup, from an older or a newer one after that, and continues. Objects that were hidden stay hidden
// until they are restored there.
func TestSequencesWithBackups(t *testing.T) {
	t.Parallel()
	eachSequence(t, 3, func(h *history, after []int, name string, c copyHere) {
		last := len(h.lists) - 1
		if !h.hidden(last) || !c.was() {
			return
		}
		for first := range last {
			for second := range last {
				c := copies()[name]
				for _, i := range append(slices.Clone(after), first, second) {
					c.run(h.lists[i])
				}
				if c.readable() {
					t.Errorf("%s: after %v with runs after %v, and backups of the times after %d and %d changes, the copy is readable", name, h.became, after, first, second)
					continue
				}
				checkGoesOn(t, h, second, fmt.Sprintf("%s: after %v with runs after %v, and backups of the times after %d and %d changes", name, h.became, after, first, second), name, c)
			}
		}
	})
}

// checkGoesOn has an origin that was restored from a backup retract an object, and restore it.
func checkGoesOn(t *testing.T, h *history, backup int, what, name string, c copyHere) {
	r := object{Path: "a.jpg", Became: h.became[:backup]}.record()
	if r.State != wire.StateCurrent && r.State != wire.StateRetracted {
		return
	}
	if r.State == wire.StateCurrent {
		r.Retract("a lamp", "anna", r.ReceivedAt.Add(100*time.Hour))
		c.run([]mirrorindex.Entry{mirrorindex.EntryOf("a.jpg", &r)})
		if c.readable() {
			t.Errorf("%s, and another retraction: the copy is readable", what)
		}
	}
	r.Restore("it was none", "anna", r.ReceivedAt.Add(101*time.Hour), false)
	c.run([]mirrorindex.Entry{mirrorindex.EntryOf("a.jpg", &r)})
	purged := slices.Contains(h.became, "Purged") || strings.HasPrefix(name, "Site, Delete")
	if !c.readable() && !purged {
		t.Errorf("%s, and a restoration: the copy is hidden", what)
	}
}

// A repeated retraction is requested only if the mirror followed the first: not if a user here retracted the copy, and not with Ignore.
// It hides nothing more, so that no safety stop counts it.
func TestRepeatedRetraction(t *testing.T) {
	t.Parallel()
	theirs := object{Path: "a.jpg", Became: []became{"Retracted", "Restored", "Retracted"}}.entry()
	for _, c := range []struct {
		changedBy, retractions string
		asks                   int
	}{{by, wire.MirrorTombstone, 1}, {"anna", wire.MirrorTombstone, 0}, {by, wire.MirrorIgnore, 0}} {
		here := here{object: object{Path: "a.jpg", Became: []became{"Retracted"}}, ChangedBy: c.changedBy}.record()
		p := plan.GuestPolicy{By: by, Retractions: c.retractions}
		is := p.Day([]mirrorindex.Entry{theirs}, []*wire.Record{here}, time.Date(2015, 4, 1, 0, 0, 0, 0, time.UTC))
		if len(is.Changes) != c.asks || len(is.Remove) != 0 {
			t.Errorf("%+v: the run asks for %+v and %+v", c, is.Changes, is.Remove)
		}
	}
}
