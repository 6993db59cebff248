// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// has writes into the ledger that a partner has the first current objects of the camera's day, so many.
func (l *lab) has(partner string, objects int) {
	l.Helper()
	var totals wire.Totals
	for rec, err := range manifest.Records(l.Context(), l.Store, site, camera, day) {
		if err != nil {
			l.Fatal(err)
		}
		if rec.State == wire.StateCurrent && totals.Objects < uint64(objects) {
			totals.Objects++
			totals.Digest = totals.Digest.Plus(rec.Digest)
		}
	}
	l.hasTotals(partner, totals)
}

func (l *lab) hasTotals(partner string, totals wire.Totals) {
	l.Helper()
	value, err := wire.Encode(wire.LedgerEntry{Incarnations: map[string]wire.Totals{"one": totals}})
	if err != nil {
		l.Fatal(err)
	}
	if _, err := l.KV(wire.LedgerBucket(site)).Put(l.Context(), wire.LedgerKey(camera, day, wire.StepMirrored, partner), value); err != nil {
		l.Fatal(err)
	}
}

// compared has a run of a partner report that it compared the copies so long before a time; negative: none says so.
func (l *lab) compared(partner string, now time.Time, before time.Duration) {
	l.Helper()
	status := wire.MirrorStatus{Run: "one", Result: wire.MirrorSucceeded}
	if before >= 0 {
		status.VerifiedTo = now.Add(-before)
	}
	// The report of a run whose clock was ahead neither counts nor hides the others.
	ahead := wire.MirrorStatus{Run: "two", Result: wire.MirrorSucceeded, VerifiedTo: now.AddDate(1, 0, 0)}
	for run, report := range map[string]wire.MirrorStatus{"one": status, "two": ahead} {
		if err := stream.Save(l.Context(), l.KV(wire.StatusBucket(site)), wire.MirrorStatusKey(partner, run), report); err != nil {
			l.Fatal(err)
		}
	}
}

// pushed is a partner that the camera's objects are pushed to.
func pushed(hold time.Duration, change ...func(*wire.MirrorEntry)) *wire.MirrorEntry {
	m := &wire.MirrorEntry{Partner: "of the lab", Direction: wire.MirrorPush, HoldMillis: hold.Milliseconds(), Prune: wire.MirrorPruneNever, Retractions: wire.MirrorDelete,
		Selection: wire.MirrorSelection{Instruments: []string{camera}, Versions: wire.MirrorVersionsCurrent}}
	for _, c := range change {
		c(m)
	}
	return m
}

// replace lists objects of the camera's day again.
func (l *lab) replace(part int, change func(i int, r *wire.Record)) {
	l.Helper()
	var all []wire.Record
	for rec, err := range manifest.Records(l.Context(), l.Store, site, camera, day) {
		if err != nil {
			l.Fatal(err)
		}
		change(len(all), &rec)
		all = append(all, rec)
	}
	l.PutPart(camera, day, part, all...)
	l.index()
}

// confirm writes that a partner confirmed the only removal.
func (l *lab) confirm(r *Collector, partner string) {
	l.Helper()
	all, err := r.batches(l.Context())
	if err != nil || len(all) != 1 {
		l.Fatal(all, err)
	}
	value, err := wire.Encode(wire.MirrorConfirmed{At: now})
	if err != nil {
		l.Fatal(err)
	}
	for _, removal := range all[0].objects {
		if _, err := r.kv.Put(l.Context(), wire.MirrorConfirmedKey(partner, removal), value); err != nil {
			l.Fatal(err)
		}
	}
}

// confirmed returns what partners confirmed.
func (l *lab) confirmed(r *Collector) []string {
	l.Helper()
	keys, err := r.allConfirmed(l.Context(), wire.MirrorConfirmedKeys("*"))
	if err != nil {
		l.Fatal(err)
	}
	return keys
}

// change rewrites the only removal, as other processes do.
func (l *lab) change(r *Collector, to func(*wire.Removal)) {
	l.Helper()
	all, err := r.batches(l.Context())
	if err != nil || len(all) != 1 {
		l.Fatal(all, err)
	}
	for _, removal := range all[0].objects {
		to(&removal)
		value, err := wire.Encode(removal)
		if err == nil {
			_, err = r.kv.Put(l.Context(), removal.Key(), value)
		}
		if err != nil {
			l.Fatal(err)
		}
	}
}

// passes works on all removals until nothing waits for readers any more.
func (l *lab) passes(r *Collector) {
	l.Helper()
	for i := range 3 {
		if err := r.pass(l.Context(), now.Add(time.Duration(i)*time.Hour)); err != nil {
			l.Fatal(err)
		}
	}
}

// A day waits for the partners that have not got all of it, duplicates apart.
func TestExpireWaitsForPartners(t *testing.T) {
	l := newLab(t)
	l.fill()
	l.keep.HoldMillis = (1000 * time.Hour).Milliseconds()
	r := l.collector()
	extra := l.record(noon, "again")
	extra.ID, extra.Key, extra.State = wire.NamedKey(site, camera, "again", 1), wire.NamedKey(site, camera, "again", 1), wire.StateDuplicate
	l.PutPart(camera, day, 2, extra)
	l.index()
	whole := map[wire.State]int{wire.StateCurrent: 7, wire.StateDuplicate: 1}
	l.has("eiscat", 6)
	l.has("madrigal", 7)
	l.pass(r, now)
	l.want("owed", l.states(camera), whole)
	for _, told := range r.told {
		if !strings.Contains(told, "eiscat have not got it") || strings.Contains(told, "madrigal") {
			t.Errorf("told: %s", told)
		}
	}
	l.want("told", len(r.told), 1)
	l.hasTotals("eiscat", wire.Totals{Objects: 7, Digest: wire.Digest{1}}) // as many, and not the same
	l.pass(r, now.Add(time.Hour))
	l.want("others", l.states(camera), whole)
	l.has("eiscat", 7)
	l.pass(r, now.Add(time.Hour+time.Second))
	l.want("it was looked at just now", l.states(camera), whole)
	l.pass(r, now.Add(2*time.Hour))
	if is := l.states(camera); is[wire.StatePurged] != 6 {
		t.Errorf("when all have got it: %v", is)
	}
}

// A partner that has nothing of a day lacks all of it: it may be away since before the day began.
func TestExpireWaitsForPartnerWithNothing(t *testing.T) {
	old := noon.AddDate(0, 0, -30)
	for name, c := range map[string]struct {
		entry *wire.MirrorEntry
		waits bool
	}{
		"it is away":                     {pushed(24 * time.Hour), true},
		"its entry cannot be read":       {nil, true},
		"it is given another instrument": {pushed(24*time.Hour, func(m *wire.MirrorEntry) { m.Selection.Instruments = []string{sonde} }), false},
		"it is given older data":         {pushed(24*time.Hour, func(m *wire.MirrorEntry) { m.Selection.ObservedTo = old }), false},
		"it is given newer data":         {pushed(24*time.Hour, func(m *wire.MirrorEntry) { m.Selection.ObservedWithinMillis = time.Hour.Milliseconds() }), false},
		"it pulls":                       {pushed(24*time.Hour, func(m *wire.MirrorEntry) { m.Direction = wire.MirrorPull }), false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.fill()
			l.keep.HoldMillis = (48 * time.Hour).Milliseconds()
			l.partners = map[string]*wire.MirrorEntry{"eiscat": c.entry}
			r := l.collector()
			l.pass(r, now)
			l.pass(r, now.Add(23*time.Hour))
			if is := l.states(camera); (is[wire.StatePurged] == 0) != c.waits {
				t.Errorf("within its holdRetention: %v", is)
			}
			l.pass(r, now.Add(48*time.Hour))
			l.want("after it", l.states(camera)[wire.StatePurged], 6)
		})
	}
}

// A segment that a partner lacks is not made up for by another one of as many datagrams, which it keeps.
func TestExpireWaitsForTheSameSegments(t *testing.T) {
	l := newLab(t)
	l.fill()
	l.partners = map[string]*wire.MirrorEntry{"eiscat": pushed(24*time.Hour, func(m *wire.MirrorEntry) { m.Retractions = wire.MirrorIgnore })}
	l.keep.HoldMillis = (24 * time.Hour).Milliseconds()
	var objects wire.Totals
	for rec, err := range manifest.Records(l.Context(), l.Store, site, camera, day) {
		if err != nil {
			t.Fatal(err)
		}
		objects.AddCopy(&rec)
	}
	var segments []wire.Record
	for i := range uint64(3) { // the first is retracted
		body := fmt.Sprint("segment ", i)
		r := l.record(noon, body)
		r.Key = wire.NamedKey(site, camera, body, 1)
		r.ID = r.Key
		r.Segment = &wire.SegmentRange{Channel: "raw", Epoch: "1", First: i, Last: i, Messages: 1, Datagrams: 600}
		if i == 0 {
			r.State, r.RetractedAt = wire.StateRetracted, &noon
		}
		l.Put(r.Key, []byte(body))
		segments = append(segments, r)
	}
	l.PutPart(camera, day, 2, segments...)
	l.index()
	for _, c := range []struct {
		what  string
		has   []int
		waits bool
	}{
		{"another one of as many", []int{0, 2}, true},
		{"those that are current", []int{1, 2}, false},
	} {
		has := objects
		for _, i := range c.has {
			has.AddCopy(&segments[i])
		}
		l.hasTotals("eiscat", has)
		r := l.collector()
		l.pass(r, now)
		if is := l.states(camera); (is[wire.StateCurrent] > 1) != c.waits {
			t.Errorf("%s: states: %v; told: %v", c.what, is, r.told)
		}
	}
}

// A partner does not lack objects that it is not to have: a day does not wait for them.
func TestExpireWaitsForNothingElse(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*wire.MirrorEntry)
		// has are the objects, by number, that the partner has; 0 is retracted, 1 superseded and 2 expired.
		has   []int
		waits bool
	}{
		"all that is current":          {func(*wire.MirrorEntry) {}, []int{3, 4, 5, 6}, false},
		"less":                         {func(*wire.MirrorEntry) {}, []int{3, 4, 5}, true},
		"what expired is kept":         {func(*wire.MirrorEntry) {}, []int{2, 3, 4, 5, 6}, false},
		"what is retracted is kept":    {func(m *wire.MirrorEntry) { m.Retractions, m.Prune = wire.MirrorIgnore, wire.MirrorPruneWhenExpired }, []int{0, 3, 4, 5, 6}, false},
		"what is retracted is lacking": {func(m *wire.MirrorEntry) { m.Retractions = wire.MirrorIgnore }, []int{3, 4, 5, 6}, false},
		"what is retracted, too":       {func(*wire.MirrorEntry) {}, []int{0, 3, 4, 5, 6}, true},
		"all versions":                 {func(m *wire.MirrorEntry) { m.Selection.Versions = wire.MirrorVersionsAll }, []int{1, 3, 4, 5, 6}, false},
		"not all versions":             {func(m *wire.MirrorEntry) { m.Selection.Versions = wire.MirrorVersionsAll }, []int{3, 4, 5, 6}, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.fill()
			l.partners = map[string]*wire.MirrorEntry{"eiscat": pushed(24*time.Hour, c.change)}
			l.keep.HoldMillis = (24 * time.Hour).Milliseconds()
			var has wire.Totals
			l.replace(2, func(i int, r *wire.Record) {
				if slices.Contains(c.has, i) {
					has.Objects++
					has.Digest = has.Digest.Plus(r.Digest)
				}
				switch i {
				case 0:
					r.State, r.RetractedAt = wire.StateRetracted, &noon
				case 1:
					r.State = wire.StateSuperseded
				case 2:
					r.State, r.PurgedAt, r.ChangedBy = wire.StatePurged, &noon, wire.ByRetention
				}
			})
			l.hasTotals("eiscat", has)
			r := l.collector()
			l.pass(r, now)
			if is := l.states(camera); (is[wire.StateCurrent] > 1) != c.waits {
				t.Errorf("states: %v; told: %v", is, r.told)
			}
		})
	}
}

// A purged object is removed even if the rest of its day is due to expire and waits for a partner.
func TestPurgeOfDayThatWaits(t *testing.T) {
	l := newLab(t)
	l.fill()
	l.keep.HoldMillis = (1000 * time.Hour).Milliseconds()
	l.partners = map[string]*wire.MirrorEntry{"eiscat": pushed(1000 * time.Hour)}
	r := l.collector()
	l.has("eiscat", 3)
	l.pass(r, now.Add(-time.Minute))
	l.want("removals", l.waiting(r), 1)
	key := l.purge(r).Key
	l.passes(r)
	l.want("the pack that it was in", len(l.Keys(key)), 0)
	l.want("the rest", l.states(camera)[wire.StateCurrent], 6)
	l.want("days", l.waiting(r), 1)
}

// A purge is asked of the partners that have something of the day, and stays to be seen
// until each of them confirmed it.
func TestPurgeIsConfirmed(t *testing.T) {
	l := newLab(t)
	l.fill()
	l.partners = map[string]*wire.MirrorEntry{
		"eiscat": pushed(time.Hour), "madrigal": pushed(time.Hour, func(m *wire.MirrorEntry) { m.Selection.Instruments = nil }),
	}
	r := l.collector()
	l.has("eiscat", 7)
	l.has("madrigal", 0)
	key := l.purge(r).Key
	l.passes(r)
	l.want("removals that wait for eiscat", l.waiting(r), 1)
	l.want("the old pack", len(l.Keys(key)), 0)
	for _, told := range r.told {
		if told != "Mirrors: eiscat did not confirm the purge" {
			t.Errorf("told: %s", told)
		}
	}
	l.change(r, func(is *wire.Removal) { is.Confirmed = map[string]time.Time{"eiscat": now} })
	l.passes(r)
	l.want("removals after that", l.waiting(r), 0)
}

// A purge is asked of a partner that is to have the object, whatever the ledger says: a run that failed may have brought it.
func TestPurgeIsAskedOfPartnerWithNothing(t *testing.T) {
	l := newLab(t)
	l.fill()
	l.partners = map[string]*wire.MirrorEntry{
		"eiscat": pushed(time.Hour), "madrigal": pushed(time.Hour, func(m *wire.MirrorEntry) { m.Selection.ObservedTo = noon }),
	}
	r := l.collector()
	l.purge(r)
	l.passes(r)
	l.want("removals that wait for eiscat", l.waiting(r), 1)
	for _, told := range r.told {
		if told != "Mirrors: eiscat did not confirm the purge" {
			t.Errorf("told: %s", told)
		}
	}
	l.confirm(r, "eiscat")
	l.passes(r)
	l.want("removals after that", l.waiting(r), 0)
}

// No partner is asked to purge a duplicate whose bytes are taken out of its pack: partners are given the
// original.
func TestPurgeOfDuplicateIsAskedOfNobody(t *testing.T) {
	l := newLab(t)
	l.fill()
	l.partners = map[string]*wire.MirrorEntry{"eiscat": pushed(time.Hour)}
	r := l.collector()
	l.has("eiscat", 7)
	purged := l.purge(r)
	l.replace(3, func(_ int, rec *wire.Record) {
		if rec.ID == purged.ID {
			rec.State, rec.PurgedAt, rec.DuplicateOf = wire.StateDuplicate, nil, "the original"
		}
	})
	l.passes(r)
	l.want("removals", l.waiting(r), 0)
}

// A day waits for a partner no longer than the partner's own holdRetention, nor than its Instrument's; and not at all for one that is not
// declared any more.
func TestPartnersHoldNotForEver(t *testing.T) {
	l := newLab(t)
	l.fill()
	l.partners = map[string]*wire.MirrorEntry{"eiscat": pushed(30 * time.Minute)}
	r := l.collector()
	whole := map[wire.State]int{wire.StateCurrent: 7}
	l.has("eiscat", 6)
	l.has("gone", 0)
	l.pass(r, now)
	l.want("owed to eiscat", l.states(camera), whole)
	for _, told := range r.told {
		if !strings.Contains(told, "eiscat have not got it") {
			t.Errorf("told: %s", told)
		}
	}
	l.has("madrigal", 6)
	l.partners["madrigal"] = pushed(1000 * time.Hour)
	l.pass(r, now.Add(31*time.Minute)) // eiscat's time is over, madrigal's is the Instrument's
	l.want("owed to madrigal", l.states(camera), whole)
	l.pass(r, now.Add(60*time.Minute))
	if is := l.states(camera); is[wire.StatePurged] != 6 {
		t.Errorf("when nobody may hold it any longer: %v", is)
	}
}

// A partner whose declaration goes holds nothing any more, and confirms nothing.
func TestPartnerIsNotDeclaredAnyMore(t *testing.T) {
	l := newLab(t)
	l.fill()
	l.partners = map[string]*wire.MirrorEntry{"eiscat": pushed(time.Hour)}
	r := l.collector()
	l.has("eiscat", 7)
	l.purge(r)
	l.passes(r)
	l.want("removals that wait for eiscat", l.waiting(r), 1)
	l.partners = map[string]*wire.MirrorEntry{}
	l.passes(r)
	l.want("removals that wait for nobody", l.waiting(r), 0)
}

// A partner confirms a purge by a record of its own, which goes with the removal.
func TestPartnerConfirms(t *testing.T) {
	l := newLab(t)
	l.fill()
	r := l.collector()
	l.has("eiscat", 7)
	l.purge(r)
	l.passes(r)
	l.want("removals that wait for eiscat", l.waiting(r), 1)
	l.confirm(r, "eiscat")
	l.passes(r)
	l.want("removals after that", l.waiting(r), 0)
	l.want("what was confirmed", l.confirmed(r), []string{})
}

// The confirmations of a partner stay as long as the removal, to which something may be added while a pass is under way; and confirmations that
// are left by an archivist that was killed in between are removed when the next one begins.
func TestConfirmedStaysWithItsRemoval(t *testing.T) {
	l := newLab(t)
	l.fill()
	r := l.collector()
	l.has("eiscat", 7)
	l.purge(r)
	l.passes(r)
	l.confirm(r, "eiscat")
	first, second := wire.NamedKey(site, camera, "first", 1), wire.NamedKey(site, camera, "second", 1)
	l.Put(first, []byte("packed 0"))
	l.Put(second, []byte("packed 0"))
	l.change(r, func(is *wire.Removal) { is.Found = first })
	l.Store.Refuse = func(string, bool) error {
		l.Store.Refuse = nil
		l.change(r, func(is *wire.Removal) { is.Found = second })
		return nil
	}
	if err := r.pass(t.Context(), now.Add(3*time.Hour)); err != nil {
		t.Fatal(err)
	}
	l.want("removals with something added", l.waiting(r), 1)
	l.want("what was confirmed of it", len(l.confirmed(r)), 1)
	if err := r.forgetLeft(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.want("what was confirmed of a removal that is there", len(l.confirmed(r)), 1)
	all, err := r.batches(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	for _, key := range all[0].keys() {
		if _, err := r.deleteEntry(t.Context(), all[0], key); err != nil { // and here it is killed
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- l.collector().Run(ctx) }()
	testenv.Await(t, "what was confirmed of a removal that is done goes", func() bool { return len(l.confirmed(r)) == 0 })
	cancel()
	<-ended
}

// Bytes of an object that are found again are removed while its purge waits for a partner, even if the
// finding is written while a pass is under way.
func TestFoundAgainGoesWhileItWaits(t *testing.T) {
	l := newLab(t)
	l.fill()
	r := l.collector()
	l.has("eiscat", 7)
	l.purge(r)
	l.passes(r)
	l.want("removals that wait for eiscat", l.waiting(r), 1)
	first, second := wire.NamedKey(site, camera, "first", 1), wire.NamedKey(site, camera, "second", 1)
	l.Put(first, []byte("packed 0"))
	l.change(r, func(is *wire.Removal) { is.Found = first })
	l.passes(r)
	l.want("what was found again", len(l.Keys(first)), 0)
	l.want("removals that wait for eiscat", l.waiting(r), 1)

	l.Put(first, []byte("packed 0"))
	l.Put(second, []byte("packed 0"))
	l.change(r, func(is *wire.Removal) { is.Confirmed = map[string]time.Time{"eiscat": now} })
	l.Store.Refuse = func(string, bool) error {
		l.Store.Refuse = nil
		l.change(r, func(is *wire.Removal) { is.Found = second })
		return nil
	}
	if err := r.pass(t.Context(), now.Add(3*time.Hour)); err != nil {
		t.Fatal(err)
	}
	l.want("removals with something added", l.waiting(r), 1)
	l.passes(r)
	l.want("what was found meanwhile", len(l.Keys(second)), 0)
	l.want("removals at the end", l.waiting(r), 0)
}
