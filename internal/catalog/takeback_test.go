// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Notices that take objects back are heard at once: what was retracted can be restored,
// what was purged cannot, and what is not hidden cannot be either.
func TestTakenBack(t *testing.T) {
	l := newLab(t)
	at := func(i int) time.Time { return noon.Add(time.Duration(i) * time.Minute) }
	shown, hidden := object(at(1), "a.jpg"), object(at(2), "b.jpg")
	l.part(camera, shown)
	l.flush()
	c := l.catalog(nil)
	ask := func(r wire.Record, state wire.State, when int, reason string) {
		t.Helper()
		now := at(when)
		r.State, r.Reason, r.ChangedBy = state, reason, "anna"
		switch state {
		case wire.StateRetracted:
			r.RetractedAt = &now
		case wire.StatePurged:
			r.PurgedAt = &now
		default:
			r.RestoredAt = &now
		}
		l.Announce(camera, r)
		l.ready(c)
	}
	want := func(path string, state wire.State, reason string) {
		t.Helper()
		if r := l.find(c, path); r.State != state || r.Reason != reason {
			t.Errorf("%s is %s (%s), want %s (%s)", path, r.State, r.Reason, state, reason)
		}
	}
	l.Announce(camera, hidden)
	l.ready(c)
	want("b.jpg", wire.StateCurrent, "")
	ask(hidden, wire.StateRetracted, 10, "dark")
	ask(shown, wire.StateRetracted, 10, "dark too")
	want("b.jpg", wire.StateRetracted, "dark")
	want("a.jpg", wire.StateRetracted, "dark too")
	if r, found := c.Latest(camera, ""); found {
		t.Errorf("the latest is %s, though all is hidden", r.ID)
	}
	ask(hidden, wire.StateCurrent, 20, "moon")
	want("b.jpg", wire.StateCurrent, "moon")
	if r, found := c.Latest(camera, ""); !found || r.ID != hidden.ID {
		t.Errorf("the latest is %s, %t: %s was restored", r.ID, found, hidden.ID)
	}
	ask(hidden, wire.StateCurrent, 30, "once more")
	want("b.jpg", wire.StateCurrent, "moon")
	ask(hidden, wire.StatePurged, 40, "private")
	ask(hidden, wire.StateCurrent, 50, "too late")
	ask(hidden, wire.StateRetracted, 60, "less")
	want("b.jpg", wire.StatePurged, "private")
	if r := l.find(c, "b.jpg"); r.PurgedAt == nil || r.ChangedBy != "anna" {
		t.Errorf("%+v", r)
	}
	if d := l.day(c, camera, wire.DayOf(noon)); !d.Changed.Equal(at(40)) {
		t.Errorf("changed at %s", d.Changed)
	}
}

// What was restored once can be purged and retracted as anything else: what a notice asks
// for says its state, and not that it carries restoredAt.
func TestTakenBackAfterARestore(t *testing.T) {
	l := newLab(t)
	when, later := noon.Add(time.Hour), noon.Add(2*time.Hour)
	private, dark := object(noon, "a.jpg"), object(noon.Add(time.Minute), "b.jpg")
	private.RestoredAt, dark.RestoredAt = &when, &when
	l.part(camera, private, dark)
	l.flush()
	c := l.catalog(nil)
	l.ready(c)
	private.State, private.PurgedAt, private.Reason = wire.StatePurged, &later, "private"
	dark.State, dark.RetractedAt, dark.Reason = wire.StateRetracted, &later, "dark"
	l.Announce(camera, private, dark)
	l.ready(c)
	if r := l.find(c, "a.jpg"); r.State != wire.StatePurged || r.PurgedAt == nil || r.Reason != "private" {
		t.Errorf("%+v", r)
	}
	if r := l.find(c, "b.jpg"); r.State != wire.StateRetracted || r.Reason != "dark" {
		t.Errorf("%+v", r)
	}
	if r, found := c.Latest(camera, ""); found {
		t.Errorf("the latest is %s, which is gone", r.ID)
	}
}

// What legal hold refuses is not shown either, and whatever the manifest's writer
// decides of it counts in the end.
func TestTakenBackUnderHold(t *testing.T) {
	l := newLab(t)
	at := func(i int) time.Time { return noon.Add(time.Duration(i) * time.Minute) }
	hidden, first, second := object(at(0), "z.jpg"), object(at(1), "a.jpg"), object(at(2), "b.jpg")
	sent, when := hidden, at(9)
	hidden.State, hidden.Reason, hidden.RetractedAt = wire.StateRetracted, "before the hold", &when
	l.part(camera, sent, hidden, first, second)
	l.flush()
	var held atomic.Bool
	held.Store(true)
	c := l.catalog(func(cfg *Config) {
		cfg.Held = func(instrument string) bool { return instrument == camera && held.Load() }
	})
	ask := func(r wire.Record, state wire.State, restored bool) wire.Record {
		now := at(10)
		r.State, r.Reason, r.ChangedBy, r.RetractedAt = state, "asked", "anna", &now
		if restored {
			r.RestoredAt = &now
		}
		l.Announce(camera, r)
		return r
	}
	ask(first, wire.StatePurged, false)
	retracted := ask(second, wire.StateRetracted, false)
	ask(hidden, wire.StateCurrent, true)
	l.ready(c)
	want := func(what string, latest string, states ...wire.State) {
		t.Helper()
		for i, path := range []string{"a.jpg", "b.jpg", "z.jpg"} {
			if is := l.find(c, path).State; is != states[i] {
				t.Errorf("%s: %s is %s, want %s", what, path, is, states[i])
			}
		}
		if r, _ := c.Latest(camera, ""); r.ID != latest {
			t.Errorf("%s: the latest is %q, want %q", what, r.ID, latest)
		}
	}
	want("under hold", second.ID, wire.StateCurrent, wire.StateCurrent, wire.StateCurrent)
	tag := l.day(c, camera, wire.DayOf(noon)).Tag
	held.Store(false)
	want("without hold", second.ID, wire.StatePurged, wire.StateRetracted, wire.StateCurrent) // the latest stays until it is decided
	if l.day(c, camera, wire.DayOf(noon)).Tag == tag {
		t.Error("days that hold other things have one tag")
	}

	// The writer knew of the end of the hold when the second was asked for, and we do not.
	held.Store(true)
	want("under hold again", second.ID, wire.StateCurrent, wire.StateCurrent, wire.StateCurrent)
	shown, later := hidden, at(10)
	shown.State, shown.RestoredAt = wire.StateCurrent, &later
	l.part(camera, shown, retracted)
	l.flush()
	l.ready(c)
	want("decided", first.ID, wire.StateCurrent, wire.StateRetracted, wire.StateCurrent)
}
