// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"testing"
	"time"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// Notices that retract objects are heard at once: what was retracted can be restored,
// what was purged cannot, and what is not hidden cannot be either.
func TestRetracted(t *testing.T) {
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

// An object that was once restored can be purged and retracted like any other: the state
// of a notice says what it asks for, not that it carries restoredAt.
func TestRetractedAfterARestore(t *testing.T) {
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

// A notice of a retraction of another Site's object says when it was retracted there.
func TestRetractedAtItsOrigin(t *testing.T) {
	l := newLab(t)
	const guest = "arctic_allsky-1"
	when, later := noon.Add(time.Hour), noon.Add(2*time.Hour)
	r := object(noon, "a.jpg")
	r.Origin = &wire.Origin{Site: "arctic", ID: "o/arctic/allsky-1/n/a.jpg"}
	r.ID = r.Origin.ObjectID(site, guest, r.ReceivedAt, r.Digest)
	r.Key = r.ID
	l.part(guest, r)
	l.flush()
	c := l.catalog(nil)
	l.ready(c)
	r.Retract("a lamp", "mirror north", later)
	r.Origin = &wire.Origin{Site: "arctic", ID: r.Origin.ID, RetractedAt: &when}
	l.Announce(guest, r)
	l.ready(c)
	d := l.day(c, guest, wire.DayOf(noon))
	if len(d.Records) != 1 || d.Records[0].State != wire.StateRetracted || d.Records[0].Origin.RetractedAt == nil || !d.Records[0].Origin.RetractedAt.Equal(when) {
		t.Errorf("%+v", d.Records)
	}
}

// Only the archivist decides what is retracted: a notice from another publisher changes nothing.
func TestRetractedByOthers(t *testing.T) {
	l := newLab(t)
	shown := object(noon, "a.jpg")
	l.part(camera, shown)
	l.flush()
	c := l.catalog(nil)
	l.ready(c)
	gone, when := shown, noon.Add(time.Hour)
	gone.State, gone.PurgedAt, gone.Reason = wire.StatePurged, &when, "private"
	for _, source := range []string{"gateway-0", wire.CommandWriter, wire.ImportWriter} {
		m, err := stream.NoticeMessage(wire.Notice{Site: site, Instrument: camera, Record: gone}, source)
		if err != nil {
			t.Fatal(err)
		}
		m.Header.Set(wire.HeaderMessageID, gone.ID+source) // else the stream drops the second
		if _, err := l.JetStream.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	after := object(noon.Add(time.Minute), "b.jpg")
	l.Announce(camera, after)
	l.ready(c)
	if r := l.find(c, "a.jpg"); r.State != wire.StateCurrent {
		t.Errorf("a.jpg is %s by a notice that the archivist has not published", r.State)
	}
	if r := l.find(c, "b.jpg"); r.State != wire.StateCurrent {
		t.Errorf("b.jpg is %s", r.State)
	}
}
