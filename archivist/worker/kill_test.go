// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// TestKilledAtEveryStep kills an archivist at each kind of write that it does, once before and once after the write
// took effect, and lets another take over. The content of the archive in the end must not depend on when that was.
func TestKilledAtEveryStep(t *testing.T) {
	s := start(t)
	for i, step := range []struct {
		write string
		n     int
	}{
		// The manifest's writer.
		{`^put manifest/.*/` + camera, 1}, {`^put manifest/.*/` + camera, 2}, {`^put manifest/.*/` + mag, 1},
		{`^publish .*Duplicate`, 1}, {`^publish .*Duplicate`, 2}, {`^delete o/`, 1}, {`^delete o/`, 2},
		{`^write ` + camera + `\..*\.duplicates`, 1}, {`^write ` + camera + `\..*\.duplicates`, 2},
		{`^write notices of`, 1}, {`^write notices of`, 2},
		// The cutter: a planned cut, and a finished one.
		{`^write segment\.`, 1}, {`^put o/`, 1}, {`^publish .*pcapng$`, 1}, {`^write segment\.`, 2},
		{`^write ` + mag + `\..*\.stored`, 1}, {`^write ` + mag + `\..*\.stored`, 2},
		// The same for telemetry that cannot be read, and that names no channel.
		{`^write segment\.noise\.`, 1}, {`^write segment\.noise\.`, 2}, {`^write noise\..*\.stored`, 1},
		{`^write segment\..*\._unknown`, 1}, {`^write segment\..*\._unknown`, 2}, {`^write _unknown\..*\.stored`, 1},
		// The sweep.
		{`^publish .*/r/.*[0-9a-f]$`, 1}, {`^publish .*/r/.*[0-9a-f]$`, 2}, {`^write sweep of`, 1},
	} {
		for _, after := range []bool{false, true} {
			name := fmt.Sprintf("%s %d before", step.write, step.n)
			code := fmt.Sprintf("before-%d", i)
			if after {
				name, code = fmt.Sprintf("%s %d after", step.write, step.n), fmt.Sprintf("after-%d", i)
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				died := make(chan struct{})
				m := &mortality{step: regexp.MustCompile(step.write), n: step.n, after: after, freed: func() { close(died) }}
				killAndTakeOver(t, s.site(t, code), m, died)
			})
		}
	}
}

// unreadable publishes a message of so many datagrams that cannot be read.
func (l *lab) unreadable(subject string, at time.Time, datagrams int) {
	l.t.Helper()
	publishRaw(l.t, l, subject, []byte{0xff, 0xff}, map[string]string{wire.HeaderTime: wire.FormatTime(at), wire.HeaderFormat: "1",
		wire.HeaderDatagrams: fmt.Sprint(datagrams), wire.HeaderDatagramBytes: fmt.Sprint(8 * datagrams)})
}

func (l *lab) undecodable(instrument string, at time.Time) uint64 {
	return l.ledger(instrument, wire.DayOf(at), wire.StepStored).Dropped[wire.CauseUndecodable]
}

func killAndTakeOver(t *testing.T, l *lab, m *mortality, died <-chan struct{}) {
	now := time.Now().UTC()
	l.settings["noise"] = l.settings[mag]
	messages := 12
	for i := range messages {
		l.telemetry(mag, now, 3)
		if i == 5 {
			l.unreadable(wire.ObservationSubject(l.site, mag, channel), now, 7)
		}
	}
	l.unreadable(wire.ObservationSubject(l.site, mag, "Odd"), now, 11)
	l.unreadable(wire.ObservationSubject(l.site, "noise", channel), now, 13)
	l.unreadable("obs."+l.site+".x", now, 17)
	first := l.send(camera, now, "frame")
	duplicate := l.send(camera, now.Add(time.Millisecond), "frame")
	other := l.send(camera, now.Add(2*time.Millisecond), "another frame")
	forgotten := l.putObject(camera, object{now.Add(3 * time.Millisecond), "never announced"})
	forgottenDuplicate := l.putObject(camera, object{now.Add(4 * time.Millisecond), "another frame"})

	complete := func() bool {
		return len(l.listed(camera)) == 5 && len(l.stored(camera)) == 3 && len(l.datagrams(mag)) == messages*3 &&
			l.ledger(mag, wire.DayOf(now), wire.StepStored).Datagrams == uint64(messages*3) &&
			l.undecodable(mag, now) >= 7+11 && l.undecodable("noise", now) >= 13 && l.undecodable(wire.UnknownInstrument, now) >= 17 &&
			l.ledger(camera, wire.DayOf(now), wire.StepDuplicates).Objects == 2
	}
	cfg := l.config("a")
	cfg.JetStream, cfg.Store = mortalJetStream{l.js, m}, mortalStore{l.store, m}
	stop := l.run(cfg)
	select {
	case <-died:
	case <-time.After(3 * time.Minute):
		t.Fatal("the archivist never came to the step at which it was to die")
	}
	for range 6 { // what comes meanwhile must not change a cut that had begun
		l.telemetry(mag, now, 3)
		messages++
	}
	l.run(l.config("b"))
	l.await("the archive is complete", complete)
	want(t, "undecodable", []uint64{7 + 11, 13, 17},
		[]uint64{l.undecodable(mag, now), l.undecodable("noise", now), l.undecodable(wire.UnknownInstrument, now)})
	want(t, "segments of noise", 0, len(l.stored("noise")))
	stop()

	want(t, "listed", sorted(first.Key, other.Key, forgotten.Key), l.keys(camera, wire.StateCurrent))
	want(t, "duplicates", sorted(duplicate.Key, forgottenDuplicate.Key), l.keys(camera, wire.StateDuplicate))
	want(t, "stored", sorted(first.Key, other.Key, forgotten.Key), l.stored(camera))
	want(t, "datagrams", numbers(messages, 3), l.datagrams(mag))
	segments := l.keys(mag, wire.StateCurrent)
	want(t, "stored segments", segments, slices.Sorted(slices.Values(l.stored(mag))))
	duplicates := wire.Totals{Objects: 2, ObjectBytes: uint64(duplicate.Size + other.Size), Digest: duplicate.Digest.Plus(other.Digest)}
	want(t, "duplicates", duplicates, l.ledger(camera, wire.DayOf(now), wire.StepDuplicates))
}
