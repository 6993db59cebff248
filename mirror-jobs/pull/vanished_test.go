// SPDX-License-Identifier: Apache-2.0

package pull_test

import (
	"errors"
	"testing"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
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
