// SPDX-License-Identifier: Apache-2.0

package access

import (
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// A partner is to have what its MirrorPartner selects by instrument and time of observation, and what it may have.
func TestMirrored(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	days := func(n int) time.Time { return now.AddDate(0, 0, -n) }
	push := func(s wire.MirrorSelection) *wire.MirrorEntry {
		s.Instruments = []string{"camera"}
		return &wire.MirrorEntry{Partner: "uni", Direction: wire.MirrorPush, Selection: s}
	}
	observed := func(from, to time.Time) *wire.Record {
		return &wire.Record{ReceivedAt: now, ObservedFrom: &from, ObservedTo: &to}
	}
	camera := wire.InstrumentEntry{Instrument: "camera"}
	fresh := wire.InstrumentEntry{Instrument: "camera", Access: &wire.AccessEntry{Archive: wire.AccessPublic, EmbargoMillis: (48 * time.Hour).Milliseconds()}}
	hidden := wire.InstrumentEntry{Instrument: "camera", Access: &wire.AccessEntry{Archive: wire.AccessRestricted}}
	named := wire.InstrumentEntry{Instrument: "camera", Access: &wire.AccessEntry{Archive: wire.AccessRestricted, Readers: []string{"mirror:uni"}}}
	pull := push(wire.MirrorSelection{})
	pull.Direction = wire.MirrorPull
	received := &wire.Record{ReceivedAt: now}
	for _, c := range []struct {
		what string
		m    *wire.MirrorEntry
		in   wire.InstrumentEntry
		r    *wire.Record
		is   bool
	}{
		{"all", push(wire.MirrorSelection{}), camera, received, true},
		{"another instrument", push(wire.MirrorSelection{}), wire.InstrumentEntry{Instrument: "sonde"}, received, false},
		{"a pull", pull, camera, received, false},
		{"before what is selected", push(wire.MirrorSelection{ObservedFrom: days(2)}), camera, observed(days(4), days(3)), false},
		{"at its beginning", push(wire.MirrorSelection{ObservedFrom: days(2)}), camera, observed(days(3), days(2)), true},
		{"at its end", push(wire.MirrorSelection{ObservedTo: days(2)}), camera, observed(days(2), days(1)), false},
		{"too old", push(wire.MirrorSelection{ObservedWithinMillis: time.Hour.Milliseconds()}), camera, observed(days(2), days(1)), false},
		{"young enough", push(wire.MirrorSelection{ObservedFrom: days(9), ObservedWithinMillis: time.Hour.Milliseconds()}), camera, received, true},
		{"under embargo", push(wire.MirrorSelection{}), fresh, observed(days(2), days(1)), false},
		{"under embargo, included", push(wire.MirrorSelection{Embargoed: true}), fresh, observed(days(2), days(1)), true},
		{"after the embargo", push(wire.MirrorSelection{}), fresh, observed(days(4), days(3)), true},
		{"restricted", push(wire.MirrorSelection{}), hidden, received, false},
		{"restricted, and named", push(wire.MirrorSelection{}), named, received, true},
	} {
		selects := Mirrored(c.m, &c.in, now)
		if is := selects != nil && selects(c.r); is != c.is {
			t.Errorf("%s: %t", c.what, is)
		}
	}
}
