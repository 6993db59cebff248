// SPDX-License-Identifier: Apache-2.0

package site_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/site"
)

// newPair is a hub that has pulled two instruments.
func newPair(t *testing.T) (h *hub, camera, other wire.InstrumentEntry) {
	t.Helper()
	h = newHub(t)
	camera = h.Snapshot().Instruments[archivetest.Camera]
	other = wire.InstrumentEntry{Instrument: second, UID: second, Generation: 1, Access: archivetest.Public}
	h.Declare(camera, other)
	h.has("a.jpg", storm)
	h.hasOf(second, "b.csv", storm)
	h.pulled()
	h.reads("at first", wire.AccessPublic, wire.AccessPublic)
	return h, camera, other
}

// reads checks who may read the two instruments at the hub.
func (h *hub) reads(when, camera, other string) {
	h.Helper()
	for name, want := range map[string]string{archivetest.Camera: camera, second: other} {
		in, is := h.snapshot().Instruments[wire.GuestName(archivetest.Site, name)]
		if got := in.Access.InForce().Archive; !is || got != want {
			h.Errorf("%s: %s is there: %t, for %s, not %s", when, name, is, got, want)
		}
	}
}

func closed(in wire.InstrumentEntry) wire.InstrumentEntry {
	in.Access = archivetest.Restricted
	return in
}

// An instrument that was deleted at the origin stays readable at the mirror; once it is declared again and closed there, it is closed
// here, though the root of the index is the same.
func TestDeletedThenClosed(t *testing.T) {
	t.Parallel()
	h, camera, other := newPair(t)
	h.Declare(camera)
	for _, when := range []string{"once it is deleted", "in the run after that"} {
		if asked := h.pulled(); countOf(asked, mirrorindex.DaysPath) != 1 {
			t.Errorf("%s: %q", when, asked)
		}
		h.reads(when, wire.AccessPublic, wire.AccessPublic)
	}
	h.Declare(camera, closed(other))
	h.pulled()
	h.reads("once it is closed", wire.AccessPublic, wire.AccessRestricted)
	if asked := h.pulled(); len(asked) != 1 {
		t.Errorf("nothing changed: %q", asked)
	}
	h.Declare(camera, other)
	h.pulled()
	h.reads("once it is open again", wire.AccessPublic, wire.AccessPublic)
}

// If an origin offers nothing any more, or closes all at once, nothing is hidden at the mirror until a run is forced.
func TestAllMissing(t *testing.T) {
	t.Parallel()
	h, camera, other := newPair(t)
	stops := func(when string) {
		t.Helper()
		_, err := h.pull(h.URL)
		var p *push.Problem
		if !errors.As(err, &p) || p.Reason != wire.MirrorReasonSafetyStop || !strings.Contains(err.Error(), "2 of 2 instruments") ||
			!strings.Contains(err.Error(), "mirror run north --force") {
			t.Errorf("%s: %v", when, err)
		}
		h.reads(when, wire.AccessPublic, wire.AccessPublic)
	}
	forced := func() {
		t.Helper()
		if _, err := h.pull(h.URL, func(c *site.Config) { c.Force = true }); err != nil {
			t.Error(err)
		}
	}
	h.Declare()
	stops("the origin is empty")
	stops("it still is")
	forced()
	h.pulled()
	h.reads("somebody accepted it", wire.AccessPublic, wire.AccessPublic)

	h.Declare(camera, other)
	h.pulled()
	h.Declare(closed(camera), closed(other))
	stops("all is closed at once")
	forced()
	h.reads("somebody accepted that, too", wire.AccessRestricted, wire.AccessRestricted)
	h.pulled()
}

// Instruments that come after a run has stopped do not make those that are missing so few that the next run continues.
func TestMissingAmongMany(t *testing.T) {
	t.Parallel()
	h, _, _ := newPair(t)
	var others []wire.InstrumentEntry
	for _, name := range []string{"riometer", "lidar", "radar"} {
		others = append(others, wire.InstrumentEntry{Instrument: name, UID: name, Generation: 1, Access: archivetest.Public})
	}
	h.Declare(others...)
	for _, in := range others {
		h.hasOf(in.Instrument, "c.csv", storm)
	}
	for _, when := range []string{"when the others come", "once they are here", "in the run after that"} {
		_, err := h.pull(h.URL, func(c *site.Config) { c.Entry.SafetyStopPercent = 40 })
		var p *push.Problem
		if !errors.As(err, &p) || p.Reason != wire.MirrorReasonSafetyStop {
			t.Errorf("%s: %v", when, err)
		}
		h.reads(when, wire.AccessPublic, wire.AccessPublic)
	}
	for _, force := range []bool{true, false} {
		if _, err := h.pull(h.URL, func(c *site.Config) { c.Force, c.Entry.SafetyStopPercent = force, 40 }); err != nil {
			t.Errorf("forced %t: %v", force, err)
		}
	}
}
