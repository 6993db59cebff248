// SPDX-License-Identifier: Apache-2.0

package pull_test

import (
	"errors"
	"testing"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/liar"
	"github.com/substorm/substorm/mirror-jobs/pull"
)

// Each run says that the other side lists the instruments of a mirror no more, until one is forced. Their files stay.
func TestInstrumentsVanish(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Policy.SafetyStop = 10
	index := liar.BeforeIndex(t, l.URL)
	l.Wait(l.Put(archivetest.Camera, "1.txt", "one", at(storm)))
	run := func(force bool) error {
		l.force = force
		return l.from(t.Context(), index.URL)
	}
	if err := run(false); err != nil {
		t.Fatal(err)
	}
	index.Set(liar.NoInstruments)
	for range 2 {
		if err, gone := run(false), new(pull.VanishedError); !errors.As(err, &gone) || gone.Held != 1 || len(gone.Names) != 1 || gone.Names[0] != archivetest.Camera {
			t.Errorf("with no instrument listed: %v", err)
		}
	}
	for _, force := range []bool{true, false} {
		if err := run(force); err != nil {
			t.Errorf("forced %t: %v", force, err)
		}
	}
	index.Set("")
	if err := run(false); err != nil {
		t.Error(err)
	}
	l.want("at the end", map[string]string{"allsky-1/1.txt": "one"})
}

// Instruments that come after a run has stopped do not make those that are missing so few that the next run continues.
func TestInstrumentsVanishAmongMany(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Policy.SafetyStop = 40
	l.Wait(l.Put(archivetest.Camera, "1.txt", "one", at(storm)))
	l.pull()
	var others []wire.InstrumentEntry
	for _, name := range []string{"riometer", "lidar", "radar"} {
		others = append(others, wire.InstrumentEntry{Instrument: name, UID: name, Generation: 1, Access: archivetest.Public})
	}
	l.Declare(others...)
	for _, in := range others {
		l.Wait(l.Put(in.Instrument, "2.txt", "two", at(storm)))
	}
	for range 3 {
		if err, gone := l.from(t.Context(), l.URL), new(pull.VanishedError); !errors.As(err, &gone) {
			t.Errorf("the camera is missing: %v", err)
		}
	}
	for _, force := range []bool{true, false} {
		l.force = force
		l.pull()
	}
}
