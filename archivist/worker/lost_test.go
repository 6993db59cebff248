// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/wire"
)

// The manifest of a day is lost, and the changes beside it are there. Objects that were not retracted are
// announced and listed again, and nothing else.
func TestRetractedOfLostManifest(t *testing.T) {
	l := start(t).site(t, "thule")
	at := time.Now().UTC().AddDate(0, 0, -60) // only a sweep of the whole bucket looks there
	day := wire.DayOf(at)
	// They were announced so long ago that the stream takes their notices again.
	kept, retracted := l.putObject(camera, object{at, "kept"}), l.putObject(camera, object{at.Add(time.Millisecond), "private"})
	l.putPart(camera, day, 1, kept.Record, retracted.Record)
	stop := l.run(l.config("a"))
	l.ask(retracted, wire.StateRetracted, "private")
	l.await("it is retracted", func() bool { return l.is(retracted.ID, wire.StateRetracted) })
	l.await("the whole bucket was compared, and the index knows the day", func() bool { return !l.sweepCursor().Whole.IsZero() && len(l.index(camera).Open) == 1 })
	stop()
	l.loseManifest(camera, day)
	before, announced := l.sweepCursor(), len(l.noticeStream(wire.NoticeSubjects(l.site)))

	cfg := l.config("b")
	stop = l.run(cfg)
	l.await("the whole bucket is compared again", func() bool { return l.sweepCursor().Whole.After(before.Whole) })
	l.await("what is announced is listed", func() bool { return len(l.listed(camera)) > 0 })
	stop()
	if n := found(t, cfg, "Retracted"); n < 1 {
		t.Errorf("%v objects are counted as retracted", n)
	}
	want(t, "listed", []string{kept.Key}, l.keys(camera, wire.StateCurrent))
	for _, m := range l.noticeStream(wire.NoticeSubjects(l.site))[announced:] {
		if n, err := wire.Decode[wire.Notice](m.Data); err != nil || n.ID != kept.ID {
			t.Errorf("announced: %s of %s, %v", n.State, n.ID, err)
		}
	}
}

// loseManifest removes the files of a day's manifest.
func (l *lab) loseManifest(instrument string, day wire.Day) {
	l.t.Helper()
	for info, err := range l.store.List(l.t.Context(), wire.ManifestPrefix(l.site, instrument, day), "") {
		if err == nil {
			err = l.store.Delete(l.t.Context(), info.Key)
		}
		if err != nil {
			l.t.Fatal(err)
		}
	}
}

// found returns how many of a finding an archivist's sweeps counted.
func found(t *testing.T, cfg Config, finding string) float64 {
	t.Helper()
	families, err := cfg.Metrics.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "substorm_sweep_found_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == finding {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}
