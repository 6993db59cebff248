// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// gapsOf returns the gap report of a day; nil if there is none.
func (l *lab) gapsOf(instrument string, day wire.Day) *wire.DayGaps {
	l.t.Helper()
	kv, err := l.js.KeyValue(l.t.Context(), wire.GapsBucket(l.site))
	if err != nil {
		l.t.Fatal(err)
	}
	e, err := kv.Get(l.t.Context(), wire.GapsKey(instrument, day))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil
	}
	if err != nil {
		l.t.Fatal(err)
	}
	is, err := wire.Decode[wire.DayGaps](e.Value())
	if err != nil {
		l.t.Fatal(err)
	}
	return &is
}

// TestGaps: what is missing of a day is found, by one incarnation of the archivist, and closed
// when it comes late, by another.
func TestGaps(t *testing.T) {
	l := start(t).site(t, "thule")
	entry := wire.InstrumentEntry{Instrument: camera, CadenceMillis: (10 * time.Minute).Milliseconds(),
		Listeners: []wire.ListenerEntry{{Protocol: wire.ProtocolTCP, Port: 30101}}}
	l.settings[camera] = entry
	day := wire.DayOf(time.Now().AddDate(0, 0, -2))
	begin, err := day.Start()
	if err != nil {
		t.Fatal(err)
	}
	frame := func(n int) { l.send(camera, begin.Add(time.Duration(n)*10*time.Minute), fmt.Sprint("frame ", n)) }
	for n := range 145 { // up to the next midnight
		if n < 60 || n > 70 {
			frame(n)
		}
	}
	config := func(gateway string) Config {
		cfg := l.config(gateway)
		cfg.Declared = func() ([]wire.InstrumentEntry, bool) { return []wire.InstrumentEntry{entry}, true }
		cfg.GapsInterval = 100 * time.Millisecond
		return cfg
	}
	open := func() (all []wire.MissingGap) {
		if is := l.gapsOf(camera, day); is != nil {
			for _, g := range is.Gaps {
				if g.ClosedAt == nil {
					all = append(all, g)
				}
			}
		}
		return all
	}
	stop := l.run(config("a"))
	// Parts are closed one by one: what is not listed yet is missing for a moment.
	l.await("the gap is found", func() bool { all := open(); return len(all) == 1 && all[0].Missing == 11 })
	g := open()[0]
	if !g.From.Equal(begin.Add(590*time.Minute)) || g.To == nil || !g.To.Equal(begin.Add(710*time.Minute)) || g.Cause != wire.GapInstrument {
		t.Errorf("the gap: %+v", g)
	}
	l.await("nothing came of the next day at all", func() bool {
		next := l.gapsOf(camera, wire.DayOf(begin.AddDate(0, 0, 1)))
		return next != nil && len(next.Gaps) == 1 && next.Gaps[0].From.Equal(begin.AddDate(0, 0, 1))
	})

	for n := 60; n < 66; n++ {
		frame(n)
	}
	l.await("it shrinks", func() bool { all := open(); return len(all) == 1 && all[0].Missing == 5 })
	if again := open()[0]; !again.FoundAt.Equal(g.FoundAt) {
		t.Errorf("it was found at %s, and now at %s", g.FoundAt, again.FoundAt)
	}
	stop()
	for n := 66; n < 71; n++ {
		frame(n)
	}
	l.run(config("b"))
	l.await("it is closed", func() bool { return len(open()) == 0 })
	is := l.gapsOf(camera, day)
	if len(is.Gaps) != 1 || is.Gaps[0].ClosedAt == nil || is.Due != 144 {
		t.Errorf("in the end: %+v", is)
	}
}

// TestGapsBegin: of an instrument whose objects do not say when they observe nothing is
// missing before the first that was received, whichever part lists it.
func TestGapsBegin(t *testing.T) {
	l := start(t).site(t, "thule")
	entry := wire.InstrumentEntry{Instrument: camera, CadenceMillis: (10 * time.Minute).Milliseconds(),
		Listeners: []wire.ListenerEntry{{Protocol: wire.ProtocolTCP, Port: 30101}}}
	l.settings[camera] = entry
	day := wire.DayOf(time.Now().AddDate(0, 0, -2))
	begin, err := day.Start()
	if err != nil {
		t.Fatal(err)
	}
	frame := func(n int) { l.send(camera, begin.Add(time.Duration(n)*10*time.Minute), fmt.Sprint("frame ", n)) }
	for n := 84; n < 145; n++ { // from 14:00 up to the next midnight
		frame(n)
	}
	cfg := l.config("a")
	cfg.Declared = func() ([]wire.InstrumentEntry, bool) { return []wire.InstrumentEntry{entry}, true }
	cfg.GapsInterval = 100 * time.Millisecond
	l.run(cfg)
	// Parts are closed one by one: what is not listed yet is missing for a moment.
	open := func() (all []wire.MissingGap) {
		if is := l.gapsOf(camera, day); is != nil {
			for _, g := range is.Gaps {
				if g.ClosedAt == nil {
					all = append(all, g)
				}
			}
		}
		return all
	}
	l.await("60 are due of the day", func() bool { is := l.gapsOf(camera, day); return is != nil && is.Due == 60 && len(open()) == 0 })

	frame(78) // of another gateway, whose clock or spool is behind
	l.await("it began at 13:00", func() bool { is := l.gapsOf(camera, day); return is != nil && is.Due == 66 && len(open()) == 1 })
	if g := open()[0]; !g.From.Equal(begin.Add(13*time.Hour)) || g.To == nil || !g.To.Equal(begin.Add(14*time.Hour)) || g.Missing != 5 {
		t.Errorf("the gap: %+v", g)
	}
}

// TestGapsOfStation: what a whole station is missing is Link in the pass that finds it, whichever instrument it looks at first. The first
// pass follows soon after the start, though the index is not known at once.
func TestGapsOfStation(t *testing.T) {
	l := start(t).site(t, "thule")
	const picture = "picture"
	day := wire.DayOf(time.Now().AddDate(0, 0, -2))
	begin, err := day.Start()
	if err != nil {
		t.Fatal(err)
	}
	var entries []wire.InstrumentEntry
	for _, name := range []string{camera, picture} {
		entry := wire.InstrumentEntry{Instrument: name, Station: "gillam", CadenceMillis: time.Hour.Milliseconds(),
			Listeners: []wire.ListenerEntry{{Protocol: wire.ProtocolTCP, Port: 30101}}}
		entries, l.settings[name] = append(entries, entry), entry
		for _, hour := range []int{0, 1, 2, 8, 9, 10} {
			l.send(name, begin.Add(time.Duration(hour)*time.Hour), fmt.Sprint(name, hour))
		}
	}
	stop := l.run(l.config("a"))
	l.await("all is listed", func() bool { return len(l.listed(camera)) == 6 && len(l.listed(picture)) == 6 })
	stop()

	cfg := l.config("b")
	cfg.Declared = func() ([]wire.InstrumentEntry, bool) { return entries, true }
	cfg.GapsInterval = time.Hour
	l.run(cfg)
	for _, e := range entries {
		l.await("gaps are found", func() bool { return l.gapsOf(e.Instrument, day) != nil })
		gaps := l.gapsOf(e.Instrument, day).Gaps
		if len(gaps) == 0 || !gaps[0].From.Equal(begin.Add(2*time.Hour)) || gaps[0].Cause != wire.GapLink {
			t.Errorf("%s: %+v", e.Instrument, gaps)
		}
	}
}
