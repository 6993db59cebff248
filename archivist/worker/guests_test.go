// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nuid"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/wire"
)

// guest is an instrument of the Site arctic, as it is named here.
const guest = "arctic_allsky-1"

// withGuest has the registry know the guest.
func (l *lab) withGuest() {
	e := wire.GuestEntry{Origin: "arctic", Instrument: "allsky-1", Partner: "north"}
	l.settings[guest] = e.Entry()
}

// mirroredAs is the notice of an object that its origin received at an instant, as a gateway makes it.
func (l *lab) mirroredAs(id, path string, at time.Time, body string) wire.Notice {
	n := l.notice(guest, object{at, body})
	n.Origin = &wire.Origin{Site: "arctic", ID: "o/arctic/allsky-1/n/" + id}
	n.ID = n.Origin.ObjectID(l.site, guest, n.ReceivedAt, n.Digest)
	n.Key, n.Path, n.Backfill, n.TimeSource = n.ID, path, true, wire.TimeSourceName
	n.SetObserved(at.Add(-time.Minute), time.Second)
	return n
}

// mirrored stores and announces one.
func (l *lab) mirrored(id, path string, at time.Time, body string) wire.Notice {
	l.t.Helper()
	n := l.mirroredAs(id, path, at, body)
	l.putNamed(n, body)
	l.announce(n)
	return n
}

// Objects that were pulled from another Site are listed as that Site has them: equal objects are not duplicates, and
// equal paths stay. They are packed, found by the sweep and rebuilt from the bucket as the Site's own are.
func TestGuests(t *testing.T) {
	l := start(t).site(t, "thule")
	l.withGuest()
	now := time.Now().UTC()
	old := now.Add(-72 * time.Hour).Truncate(24 * time.Hour).Add(12 * time.Hour)
	cfg := l.keeper("a")
	cfg.CompactInterval, cfg.CompactGrace, cfg.CompactAfter = 200*time.Millisecond, time.Millisecond, time.Hour
	stop := l.run(cfg)
	var all []wire.Notice
	large := strings.Repeat("large", 20_000)
	for i, day := range []time.Time{old, now} {
		all = append(all,
			l.mirrored(fmt.Sprint("a", i), "same.jpg", day, "one"), l.mirrored(fmt.Sprint("b", i), "same.jpg", day.Add(time.Millisecond), "one"),
			l.mirrored(fmt.Sprint("c", i), "2026/c ☃.jpg", day.Add(2*time.Millisecond), "three"), l.mirrored(fmt.Sprint("d", i), "d.jpg", day.Add(3*time.Millisecond), large))
	}
	l.send(camera, now, "one") // the Site's own
	unannounced := l.mirroredAs("e", "e.jpg", now.Add(5*time.Millisecond), "five")
	l.putNamed(unannounced, "five")
	all = append(all, unannounced)
	l.await("all is listed", func() bool { return len(l.listed(guest)) == len(all) && len(l.listed(camera)) == 1 })
	oldDay := wire.DayOf(old)
	l.await("the old day is compacted, and what was packed is gone", func() bool {
		files, err := manifest.List(t.Context(), l.store, l.site, guest, oldDay)
		return err == nil && !files.CompactedAt.IsZero() && len(files.InEffect) == 1 && len(l.stored(guest)) == len(all)-3
	})
	l.indexBucket()
	c := l.catalog()
	l.await("readers know all of it", func() bool { return len(l.catalogued(c, guest)) == len(all) })
	stop()
	packed := 0
	for _, r := range l.listed(guest) {
		i := slices.IndexFunc(all, func(n wire.Notice) bool { return n.ID == r.ID })
		if i < 0 {
			t.Fatalf("%s is listed", r.ID)
		}
		want := all[i].Record
		if r.InPack() {
			packed++
			want.Key, want.Offset, want.Length = r.Key, r.Offset, r.Length
		}
		if diff := cmp.Diff(want, r); diff != "" {
			t.Errorf("it is listed otherwise than announced (-announced +listed):\n%s", diff)
		}
		l.reads(r)
		n := wire.Notice{Site: l.site, Instrument: guest, Record: r}
		if err := n.CheckPlace(); err != nil {
			t.Error(err)
		}
	}
	want(t, "packed", 3, packed)
	claims, err := l.kv(wire.NamesBucket(l.site)).ListKeys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for key := range claims.Keys() {
		if key != wire.NamesListedKey {
			t.Errorf("a name is claimed: %s", key)
		}
	}
	want(t, "announced of the old day", 4, l.ledger(guest, oldDay, wire.StepAnnounced).Objects)
	want(t, "announced of today", 5, l.ledger(guest, wire.DayOf(now), wire.StepAnnounced).Objects)

	before := l.everything()
	if found := l.rebuild(); len(found) > 0 {
		t.Errorf("manifests and bucket differ: %+v", found)
	}
	l.lose(wire.ManifestSitePrefix(l.site))
	l.rebuild()
	want(t, "the lines", before, l.everything())
}

// The path of an object of another Site is in manifests where its metadata has no space for it, also when they were lost.
func TestGuestWithoutSpaceForItsPath(t *testing.T) {
	l := start(t).site(t, "thule")
	l.withGuest()
	now := time.Now().UTC()
	n := l.mirroredAs(strings.Repeat("i", 700), strings.Repeat("p", 250)+"/"+strings.Repeat("q", 250)+"/"+strings.Repeat("r", 250)+"/a.jpg", now, "one")
	if wire.MetadataFits(n) {
		t.Fatal("its metadata fits")
	}
	without := n
	without.Path = ""
	l.putNamed(without, "one")
	l.announce(n)
	stop := l.run(l.config("a"))
	l.await("it is listed", func() bool { return len(l.listed(guest)) == 1 })
	stop()
	before := l.everything()
	want(t, "the path", n.Path, l.listed(guest)[0].Path)
	l.lose(wire.ManifestSitePrefix(l.site))
	l.rebuild()
	want(t, "the line", before, l.everything())
}

// Changes at the origin are requested as a person requests them; which version is current, of other Sites' objects alone.
func TestGuestsChange(t *testing.T) {
	l := start(t).site(t, "hub")
	l.withGuest()
	now := time.Now().UTC()
	first, second, third := l.mirrored("a", "a.jpg", now, "one"), l.mirrored("b", "a.jpg", now.Add(time.Millisecond), "two"), l.mirrored("c", "c.jpg", now.Add(2*time.Millisecond), "three")
	own := l.send(camera, now, "own")
	stop := l.run(l.keeper("a"))
	l.await("all is listed", func() bool { return len(l.listed(guest)) == 3 && len(l.listed(camera)) == 1 })
	decided := func(run string) wire.ArchiveDecision {
		t.Helper()
		l.await("it is decided", func() bool { _, ok := l.decision(run); return ok })
		d, _ := l.decision(run)
		return d
	}
	for what, c := range map[string]struct {
		n      wire.Notice
		result wire.DecisionResult
		reason string
	}{"of another Site": {first, wire.DecisionDone, ""}, "of the Site": {own, wire.DecisionRefused, "Own"}, "of none": {l.mirroredAs("x", "x", now, "x"), wire.DecisionRefused, "Unlisted"}} {
		if d := decided(l.ask(c.n, wire.StateSuperseded, "")); d.Result != c.result || d.Reason != c.reason {
			t.Errorf("%s: %+v", what, d)
		}
	}
	want(t, "states", []wire.State{wire.StateSuperseded, wire.StateCurrent, wire.StateCurrent}, []wire.State{l.record(first.ID).State, l.record(second.ID).State, l.record(own.ID).State})
	if d := decided(l.ask(first, wire.StateSuperseded, "")); d.Result != wire.DecisionDone || d.State != wire.StateSuperseded {
		t.Errorf("once more: %+v", d)
	}

	// A superseded object is superseded again after it was retracted and restored.
	for _, state := range []wire.State{wire.StateRetracted, wire.StateCurrent} {
		if d := decided(l.ask(first, state, "as its origin")); d.Result != wire.DecisionDone {
			t.Errorf("%s: %+v", state, d)
		}
		if d := decided(l.ask(second, state, "as its origin")); d.Result != wire.DecisionDone {
			t.Errorf("%s: %+v", state, d)
		}
		if state == wire.StateRetracted {
			if d := decided(l.ask(second, wire.StateSuperseded, "")); d.Result != wire.DecisionRefused || d.Reason != "State" {
				t.Errorf("superseded while it is retracted: %+v", d)
			}
		}
	}
	want(t, "restored", []wire.State{wire.StateSuperseded, wire.StateCurrent}, []wire.State{l.record(first.ID).State, l.record(second.ID).State})

	if d := decided(l.ask(third, wire.StatePurged, "as its origin")); d.Result != wire.DecisionDone {
		t.Errorf("purged: %+v", d)
	}
	l.await("its bytes are gone", func() bool { return !l.there(third.Key) && len(l.removals()) == 0 })
	// A run that did not know of it brings it once more: it goes again.
	l.putNamed(third, "three")
	again := third
	again.Source = "192.0.2.8:40001"
	l.announce(again)
	l.await("its bytes are gone again", func() bool { return !l.there(third.Key) })
	want(t, "it stays purged", wire.StatePurged, l.record(third.ID).State)
	stop()

	before := l.everything()
	l.lose(wire.ManifestSitePrefix(l.site))
	l.rebuild()
	want(t, "the lines", before, l.everything())
	for _, m := range l.noticeStream(wire.NoticeSubjects(l.site)) {
		if n, err := wire.Decode[wire.Notice](m.Data); err != nil || n.Instrument == guest && (m.Subject != wire.MirroredSubject(l.site, guest) || n.CheckPlace() != nil) {
			t.Errorf("notice on %s: %v, %v", m.Subject, err, n.CheckPlace())
		}
	}
}

// An object that was restored and retracted again at its origin between two runs of a mirror is retracted again here, with the time that it
// has there, and not by a request that follows the first retraction, nor if a user of this Site had retracted it.
func TestGuestRetractedAgain(t *testing.T) {
	l := start(t).site(t, "hub")
	l.withGuest()
	now := time.Now().UTC().Truncate(time.Millisecond)
	object := l.mirrored("a", "a.jpg", now, "one")
	stop := l.run(l.keeper("a"))
	l.await("it is listed", func() bool { return len(l.listed(guest)) == 1 })
	first, second := now.Add(time.Second), now.Add(3*time.Second)
	for _, c := range []struct {
		by       string
		at, want time.Time
		reason   string
	}{{"mirror north", first, first, "a lamp"}, {"mirror north", second, second, "a face"}, {"mirror north", first, second, "a face"}, {"anna", second.Add(time.Second), second, "a face"}} {
		reason := "a lamp"
		if c.at.Equal(second) {
			reason = "a face"
		}
		run := l.request(wire.ArchiveRequest{Site: l.site, Instrument: guest, Run: nuid.Next(), Action: wire.ActionRetract, ID: object.ID, ReceivedAt: object.ReceivedAt,
			Reason: reason, By: c.by, RetractedAt: &c.at})
		l.await("it is decided", func() bool { _, ok := l.decision(run); return ok })
		r := l.record(object.ID)
		if r.State != wire.StateRetracted || r.ChangedBy != "mirror north" || r.Reason != c.reason || r.Origin.RetractedAt == nil || !r.Origin.RetractedAt.Equal(c.want) {
			t.Errorf("after a retraction at %s by %s: %+v of %+v", c.at, c.by, r, r.Origin)
		}
	}
	stop()
	before := l.everything()
	l.lose(wire.ManifestSitePrefix(l.site))
	l.rebuild()
	want(t, "the lines", before, l.everything())
}

// A notice that says otherwise than its subject and name where its object comes from is refused.
func TestGuestsOfElsewhere(t *testing.T) {
	l := start(t).site(t, "hub")
	l.withGuest()
	now := time.Now().UTC()
	good := l.mirrored("a", "a.jpg", now, "one")
	for i, spoil := range []func(*wire.Notice){
		func(n *wire.Notice) { n.Origin = nil },
		func(n *wire.Notice) { n.Origin = &wire.Origin{Site: "other", ID: n.Origin.ID} },
		func(n *wire.Notice) {
			own := l.notice(camera, object{now, "own"})
			own.Origin = n.Origin
			*n = own
		},
	} {
		n := l.mirroredAs(fmt.Sprint("spoilt", i), "b.jpg", now.Add(time.Duration(i+1)*time.Millisecond), "two")
		spoil(&n)
		l.announce(n)
	}
	last := l.mirrored("z", "z.jpg", now.Add(time.Second), "last")
	cfg := l.config("a")
	cfg.SweepInterval = time.Hour
	l.run(cfg)
	l.await("the last is listed", func() bool { return len(l.listed(guest)) == 2 })
	var ids []string
	for _, r := range l.listed(guest) {
		ids = append(ids, r.ID)
	}
	slices.Sort(ids)
	expected := []string{good.ID, last.ID}
	slices.Sort(expected)
	want(t, "listed", expected, ids)
	want(t, "of the Site's own", 0, len(l.listed(camera)))
}
