// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/pack"
	"github.com/substorm/substorm/internal/wire"
)

// sent is an object of an instrument.
type sent struct {
	instrument string
	object
}

// putPack stores a pack as a gateway does, and returns its members' notices.
func (l *lab) putPack(number uint64, objects ...sent) []wire.Notice {
	l.t.Helper()
	return l.putPackOf(number, func(wire.Notice) string { return "" }, objects...)
}

// putPackOf is putPack for objects that have IDs already.
func (l *lab) putPackOf(number uint64, id func(wire.Notice) string, objects ...sent) []wire.Notice {
	l.t.Helper()
	key := wire.PackKey(l.site, objects[0].at, "gateway-0", "incarnation1", number)
	var out bytes.Buffer
	w := pack.NewWriter(key, &out)
	var members []wire.Notice
	for _, o := range objects {
		n := l.notice(o.instrument, o.object)
		n.ID = id(n)
		n, err := w.Add(n, strings.NewReader(o.body))
		if err != nil {
			l.t.Fatal(err)
		}
		members = append(members, n)
	}
	if err := w.Close(); err != nil {
		l.t.Fatal(err)
	}
	l.put(key, out.Bytes())
	return members
}

func (l *lab) put(key string, data []byte) {
	l.t.Helper()
	err := l.store.Put(l.t.Context(), key, bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{CreateOnly: true})
	if err != nil {
		l.t.Fatal(err)
	}
}

// ids returns the IDs of an instrument's listed objects in a state, sorted.
func (l *lab) ids(instrument string, state wire.State) []string {
	ids := []string{}
	for _, r := range l.listed(instrument) {
		if r.State == state {
			ids = append(ids, r.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

func idsOf(members ...wire.Notice) []string {
	ids := []string{}
	for _, n := range members {
		ids = append(ids, n.ID)
	}
	slices.Sort(ids)
	return ids
}

// A pack that was stored and never announced, or whose members were announced only in part, is
// found; an object that is no pack does no harm.
func TestSweepFindsMembers(t *testing.T) {
	l := start(t).site(t, "hub")
	now := time.Now().UTC()
	at := func(i int) time.Time { return now.Add(time.Duration(i) * time.Millisecond) }
	never := l.putPack(1, sent{camera, object{at(0), "one"}}, sent{"sonde", object{at(1), "two"}}, sent{camera, object{at(2), "three"}})
	half := l.putPack(2, sent{camera, object{at(3), "four"}}, sent{camera, object{at(4), "five"}})
	l.announce(half[1])
	l.put(wire.PackKey(l.site, now, "gateway-0", "incarnation1", 3), []byte("no tar at all"))
	l.put(wire.PackKey(l.site, now, "gateway-0", "incarnation1", 4), []byte{0})
	l.put(strings.TrimSuffix(wire.PackKey(l.site, now, "gateway-0", "incarnation1", 5), ".tar"), []byte("x"))
	stop := l.run(l.config("gateway-1"))
	want := idsOf(never[0], never[2], half[0], half[1])
	l.await("all members are listed", func() bool {
		return len(l.ids(camera, wire.StateCurrent)) == len(want) && len(l.ids("sonde", wire.StateCurrent)) == 1
	})
	if got := l.ids(camera, wire.StateCurrent); !slices.Equal(got, want) {
		t.Errorf("listed are %v, want %v", got, want)
	}
	for _, r := range l.listed(camera) {
		l.member(r)
	}
	stop()
	late := l.putPack(6, sent{camera, object{at(5), "six"}})
	l.run(l.config("gateway-2"))
	l.await("a later pack is found by another archivist", func() bool {
		return slices.Contains(l.ids(camera, wire.StateCurrent), late[0].ID)
	})
}

// member compares a member's bytes with its digest.
func (l *lab) member(r wire.Record) {
	l.t.Helper()
	body, _, err := l.store.Get(l.t.Context(), r.Key, objectstore.Range{Offset: r.Offset, Length: r.Length})
	if err != nil {
		l.t.Fatal(err)
	}
	defer body.Close()
	if err := pack.Check(body, r); err != nil {
		l.t.Error(err)
	}
}

// A duplicate in a pack is marked as a duplicate and the pack stays; an object of its own that
// duplicates a member goes.
func TestDuplicatesOfMembers(t *testing.T) {
	l := start(t).site(t, "hub")
	now := time.Now().UTC()
	at := func(i int) time.Time { return now.Add(time.Duration(i) * time.Millisecond) }
	var objects []sent
	for i := range 5 {
		objects = append(objects, sent{camera, object{at(i), fmt.Sprint("frame ", i)}})
	}
	first := l.putPack(1, objects...)
	again := l.putPack(2, sent{camera, object{at(10), "frame 3"}}, sent{camera, object{at(11), "frame 9"}})
	for _, n := range append(slices.Clone(first), again...) {
		l.announce(n)
	}
	own := l.send(camera, at(12), "frame 4")
	l.run(l.config("gateway-1"))
	l.await("duplicates are marked", func() bool { return len(l.ids(camera, wire.StateDuplicate)) == 2 })
	if got, want := l.ids(camera, wire.StateDuplicate), idsOf(again[0], own); !slices.Equal(got, want) {
		t.Errorf("duplicates are %v, want %v", got, want)
	}
	if got, want := l.ids(camera, wire.StateCurrent), idsOf(append(first, again[1])...); !slices.Equal(got, want) {
		t.Errorf("listed are %v, want %v", got, want)
	}
	l.await("the object of its own is gone", func() bool { return len(l.stored(camera)) == 0 })
	for _, r := range l.listed(camera) {
		if r.State == wire.StateCurrent {
			l.member(r)
		}
	}
	l.await("the ledger counts the duplicates", func() bool { return l.ledger(camera, wire.DayOf(now), wire.StepDuplicates).Objects == 2 })
}

// An object that was drained from a spool has its ID from there: if it was drained twice, it is listed once, and others
// are known to be its duplicates from the first minute on.
func TestMembersFromSpools(t *testing.T) {
	l := start(t).site(t, "hub")
	now := time.Now().UTC()
	at := func(i int) time.Time { return now.Add(time.Duration(i) * time.Millisecond) }
	objects := []sent{{camera, object{at(0), "one"}}, {camera, object{at(1), "two"}}, {camera, object{at(2), "three"}}}
	first := l.putPackOf(1, wire.SpooledID, objects...)
	second := l.putPackOf(2, wire.SpooledID, objects...)
	l.announce(first[0])
	cfg := l.config("gateway-1")
	cfg.SweepAge = time.Hour // nothing is found before the duplicates are sent
	stop := l.run(cfg)
	l.await("the first is listed", func() bool { return len(l.ids(camera, wire.StateCurrent)) == 1 })
	stop()
	l.announce(first[1])
	again := l.putPackOf(3, wire.SpooledID, sent{camera, object{at(10), "one"}}, sent{camera, object{at(11), "two"}})
	own := l.send(camera, at(12), "two")
	for _, n := range again {
		l.announce(n)
	}
	cfg = l.config("gateway-2")
	cfg.PartInterval = 2 * time.Second // the second is in an open part when its duplicates come
	l.run(cfg)
	l.await("duplicates are marked, and what nobody announced is found", func() bool {
		return len(l.ids(camera, wire.StateDuplicate)) == 3 && len(l.ids(camera, wire.StateCurrent)) == 3
	})
	if got, want := l.ids(camera, wire.StateDuplicate), idsOf(again[0], again[1], own); !slices.Equal(got, want) {
		t.Errorf("duplicates are %v, want %v", got, want)
	}
	if got, want := l.ids(camera, wire.StateCurrent), idsOf(first...); !slices.Equal(got, want) || !slices.Equal(want, idsOf(second...)) {
		t.Errorf("listed are %v, want %v", got, want)
	}
	l.await("the object of its own is gone", func() bool { return len(l.stored(camera)) == 0 })
	for _, r := range l.listed(camera) {
		if r.State == wire.StateCurrent {
			l.member(r)
		}
	}
	l.await("the ledger counts the duplicates", func() bool { return l.ledger(camera, wire.DayOf(now), wire.StepDuplicates).Objects == 3 })
}

// An object that was received once and is in a pack whose store call failed too late, and in one that came out of the spool, is listed once
// and counted once, whichever is listed first, and also if equal objects are real.
func TestStoredAgain(t *testing.T) {
	for name, window := range map[string]time.Duration{"with a repeat window": time.Hour, "where equal objects are real": 0} {
		t.Run(name, func(t *testing.T) {
			l := start(t).site(t, "hub")
			now := time.Now().UTC()
			objects := []sent{{camera, object{now, "frame 1"}}, {camera, object{now.Add(time.Millisecond), "frame 2"}}}
			failed := l.putPack(1, objects...)
			drained := l.putPackOf(2, wire.SpooledID, objects...)
			want := idsOf(drained...)
			order := slices.Concat(drained, failed)
			if window > 0 {
				order = []wire.Notice{drained[0], failed[1], drained[1], failed[0]}
				want = sorted(drained[0].ID, failed[1].ID)
			}
			l.settings[camera] = wire.InstrumentEntry{Instrument: camera, RepeatWindowMillis: window.Milliseconds()}
			for _, n := range order {
				l.announce(n)
			}
			l.run(l.config("gateway-1"))
			l.await("all are listed", func() bool { return len(l.ids(camera, wire.StateCurrent))+len(l.ids(camera, wire.StateDuplicate)) == 4 })
			if got := l.ids(camera, wire.StateCurrent); !slices.Equal(got, want) {
				t.Errorf("listed are %v, want %v", got, want)
			}
			day := wire.DayOf(now)
			l.await("the ledger counts each once", func() bool { return l.ledger(camera, day, wire.StepAnnounced).Objects == 2 })
			if n := l.ledger(camera, day, wire.StepDuplicates).Objects; n != 0 {
				t.Errorf("%d duplicates are counted", n)
			}
		})
	}
}

// A pack of an old day that came out of a spool today, and that was not announced, is found when
// the whole bucket is swept.
func TestSweepFindsOldDays(t *testing.T) {
	l := start(t).site(t, "hub")
	now := time.Now().UTC()
	value, err := wire.Encode(wire.SweepCursor{Whole: now.Add(-25 * time.Hour), Recent: now.Add(-time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.kv(wire.CursorBucket(l.site)).Put(t.Context(), wire.SweepCursorKey, value); err != nil {
		t.Fatal(err)
	}
	old := l.putPack(1, sent{camera, object{now.AddDate(0, 0, -10), "from a spool"}})
	l.run(l.config("gateway-1"))
	l.await("the member is listed", func() bool { return slices.Contains(l.ids(camera, wire.StateCurrent), old[0].ID) })
}
