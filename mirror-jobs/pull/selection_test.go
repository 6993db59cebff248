// SPDX-License-Identifier: Apache-2.0

package pull_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/pull"
)

const second = "allsky-2"

func newPair(t *testing.T) *lab {
	t.Helper()
	return newLab(t, wire.InstrumentEntry{Instrument: second, UID: "second", Generation: 1, Access: archivetest.Public})
}

// Notes that a run made under one selection do not keep another run from what its selection needs.
func TestOtherSelection(t *testing.T) {
	t.Parallel()
	l := newPair(t)
	l.Put(archivetest.Camera, "1.jpg", "one", at(storm))
	l.Put(archivetest.Camera, "2.jpg", "two", at(storm.Add(time.Hour)))
	l.Put(archivetest.Camera, "3.jpg", "three", at(storm.AddDate(0, 2, 0)))
	l.Wait(l.Put(second, "4.jpg", "four", at(storm)))
	want := map[string]string{"allsky-2/4.jpg": "four"}
	l.instruments = []string{second}
	l.pull()
	l.want("one instrument", want)
	if asked := l.pull(); len(asked) != 1 {
		t.Errorf("the same selection, of which nothing changed: %q", asked)
	}

	l.instruments, l.ObservedTo = nil, storm.Add(time.Minute)
	l.pull()
	want["allsky-1/1.jpg"] = "one"
	l.want("both, to a minute after the storm", want)

	l.ObservedTo = time.Time{}
	l.pull()
	want["allsky-1/2.jpg"], want["allsky-1/3.jpg"] = "two", "three"
	l.want("all", want)
	if l.last.Objects != 2 {
		t.Errorf("what is here already came again: %+v", l.last)
	}
	if asked := l.pull(); len(asked) != 1 {
		t.Errorf("nothing changed: %q", asked)
	}
}

// An object of an instrument that is not selected any more goes when it is retracted, and no new ones of the instrument come.
func TestRetractedWhereNotSelected(t *testing.T) {
	t.Parallel()
	l := newPair(t)
	l.Put(second, "2.jpg", "two", at(storm))
	one := l.Put(archivetest.Camera, "1.jpg", "one", at(storm))
	l.Wait(one)
	l.pull()
	l.instruments = []string{second}
	l.Put(archivetest.Camera, "3.jpg", "three", at(storm.AddDate(0, 2, 0)))
	l.Wait(l.Put(archivetest.Camera, "4.jpg", "four", at(storm)))
	l.pull()
	l.want("before", map[string]string{"allsky-1/1.jpg": "one", "allsky-2/2.jpg": "two"})
	l.retract(one)
	l.pull()
	l.want("after the retraction", map[string]string{"allsky-2/2.jpg": "two"})
	l.pull() // a day with a removal is looked at again
	if asked := l.pull(); len(asked) != 1 {
		t.Errorf("nothing changed: %q", asked)
	}
}

// Objects that a run kept are removed by a run whose policy removes them, though nothing has changed at the other side.
func TestOtherPolicy(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Retractions = plan.RetractionsIgnore
	l.Put(archivetest.Camera, "1.jpg", "one", at(storm))
	two := l.Put(archivetest.Camera, "2.jpg", "two", at(storm))
	l.Wait(two)
	l.pull()
	two.State = wire.StateRetracted
	l.Announce(archivetest.Camera, two)
	l.Until("it is gone", func() bool { return strings.Contains(l.listOf("2015-03-17"), "State:Retracted") })
	l.pull()
	l.want("retractions are ignored", map[string]string{"allsky-1/1.jpg": "one", "allsky-1/2.jpg": "two"})

	l.Retractions = plan.RetractionsTombstone
	l.pull()
	l.want("they are not", map[string]string{"allsky-1/1.jpg": "one"})
}

// Each run reports a name that the other side does not have, and a run fails if a name selects nothing.
func TestNoSuchInstrument(t *testing.T) {
	t.Parallel()
	l := newPair(t)
	one := l.Put(archivetest.Camera, "1.jpg", "one", at(storm))
	l.Wait(one)
	l.instruments = []string{archivetest.Camera, "nothere", "radar-*"}
	for range 2 {
		l.log.Reset()
		l.pull()
		if log := l.log.String(); strings.Count(log, "no such Instrument") != 1 || !strings.Contains(log, "instrument=nothere") {
			t.Errorf("%s", log)
		}
	}
	for _, names := range [][]string{{"nothere"}, {"radar-*"}} {
		l.instruments = names
		for range 2 {
			if err := l.from(t.Context(), l.URL); !errors.Is(err, pull.ErrNothingSelected) || !strings.Contains(err.Error(), names[0]) {
				t.Errorf("%q: %v", names, err)
			}
		}
	}
	l.want("what there is", map[string]string{"allsky-1/1.jpg": "one"})
	l.retract(one)
	if err := l.from(t.Context(), l.URL); !errors.Is(err, pull.ErrNothingSelected) {
		t.Error(err)
	}
	l.want("after the retraction", map[string]string{})
}
