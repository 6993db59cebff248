// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

func numbers(messages, datagrams int) []uint64 {
	var all []uint64
	for m := range messages {
		for d := range datagrams {
			all = append(all, uint64(m)<<16|uint64(d))
		}
	}
	return all
}

func sorted(keys ...string) []string { slices.Sort(keys); return keys }

func want[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestArchive(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now().UTC()
	today := wire.DayOf(now)
	yesterday := now.Add(-24 * time.Hour)
	l.run(l.config("a"))

	var objects []string
	for i := range 20 {
		objects = append(objects, l.send(camera, now.Add(time.Duration(i)*time.Millisecond), fmt.Sprint("frame ", i)).Key)
	}
	old := l.send(camera, yesterday, "of yesterday").Key
	for range 30 {
		l.telemetry(mag, now, 4)
	}
	l.await("the objects are listed", func() bool { return len(l.keys(camera, wire.StateCurrent)) == 21 })
	want(t, "listed objects", sorted(append(objects, old)...), l.keys(camera, wire.StateCurrent))
	l.await("the telemetry is cut", func() bool { return l.ledger(mag, today, wire.StepStored).Datagrams == 120 })
	l.await("the segments are listed", func() bool { return len(l.datagrams(mag)) == 120 })
	want(t, "datagrams", numbers(30, 4), l.datagrams(mag))
	want(t, "bytes", 120*8, l.ledger(mag, today, wire.StepStored).DatagramBytes)
	for _, r := range l.listed(mag) {
		if r.MediaType != wire.MediaTypeSegment || r.ObservedFrom == nil || wire.DayOf(r.ReceivedAt) != today || r.Gateway != wire.ArchivistWriter {
			t.Errorf("a segment's record: %+v", r)
		}
	}
}

// Days are kept apart: a message of another day ends the segment.
func TestSegmentsOfDays(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now().UTC()
	yesterday := now.Add(-24 * time.Hour)
	for range 5 {
		l.telemetry(mag, yesterday, 2)
	}
	for range 5 {
		l.telemetry(mag, now, 2)
	}
	l.telemetry(mag, yesterday, 2) // late
	l.run(l.config("a"))
	l.await("all is listed", func() bool { return len(l.datagrams(mag)) == 22 })
	want(t, "datagrams", numbers(11, 2), l.datagrams(mag))
	l.await("the ledger counts those of yesterday", func() bool { return l.ledger(mag, wire.DayOf(yesterday), wire.StepStored).Datagrams == 12 })
	l.await("the ledger counts those of today", func() bool { return l.ledger(mag, wire.DayOf(now), wire.StepStored).Datagrams == 10 })
	if n := len(l.listed(mag)); n != 3 {
		t.Errorf("%d segments, want 3", n)
	}
}

// A segment ends at its greatest size, and holds what the stream holds twice once.
func TestSegmentSizeAndDuplicates(t *testing.T) {
	l := start(t).site(t, "thule")
	l.settings[mag] = wire.InstrumentEntry{SegmentAgeMillis: 500, SegmentSize: 2000}
	now := time.Now()
	for i := range 12 {
		l.publishTelemetry(mag, now, 8, fmt.Sprint("gateway-0/incarnation-1/", i+1), i) // some 730 bytes each
	}
	l.publishTelemetry(mag, now, 8, "gateway-0/incarnation-1/12", 11)
	l.run(l.config("a"))
	l.await("all is listed", func() bool {
		return len(l.datagrams(mag)) >= 96 && l.ledger(mag, wire.DayOf(now), wire.StepStored).Datagrams >= 96
	})
	want(t, "datagrams", numbers(12, 8), l.datagrams(mag))
	segments := l.listed(mag)
	if len(segments) < 6 {
		t.Errorf("%d segments, want at least 6", len(segments))
	}
	for _, r := range segments {
		if r.Size > 2000+500 { // the section's header comes on top
			t.Errorf("%s has %d bytes", r.Key, r.Size)
		}
	}
}

// A duplicate is removed, by whichever gateway and incarnation of the writer it comes.
func TestDuplicates(t *testing.T) {
	l := start(t).site(t, "thule")
	l.settings["twins"] = wire.InstrumentEntry{RepeatWindowMillis: 0}
	l.settings["short"] = wire.InstrumentEntry{RepeatWindowMillis: 1000}
	now := time.Now().UTC()
	stop := l.run(l.config("a"))
	first := l.send(camera, now, "frame")
	second := l.send(camera, now.Add(time.Second), "frame")
	other := l.send(camera, now.Add(2*time.Second), "another frame")
	yesterday := l.send(camera, now.Add(-20*time.Hour), "frame")
	twins := []string{l.send("twins", now, "dark").Key, l.send("twins", now.Add(time.Millisecond), "dark").Key}
	apart := []string{l.send("short", now, "dark").Key, l.send("short", now.Add(2*time.Second), "dark").Key}
	unknown := []string{l.send("unknown", now, "dark").Key, l.send("unknown", now.Add(time.Second), "dark").Key}

	l.await("three duplicates are decided", func() bool {
		return len(l.listed(camera)) == 4 && len(l.listed("twins")) == 2 && len(l.listed("short")) == 2 && len(l.listed("unknown")) == 2
	})
	l.await("the duplicates are gone", func() bool { return len(l.stored(camera)) == 2 })
	want(t, "listed", sorted(first.Key, other.Key), l.keys(camera, wire.StateCurrent))
	want(t, "duplicates", sorted(second.Key, yesterday.Key), l.keys(camera, wire.StateDuplicate))
	want(t, "stored", sorted(first.Key, other.Key), l.stored(camera))
	want(t, "twins", twins, l.keys("twins", wire.StateCurrent))
	want(t, "too far apart", apart, l.keys("short", wire.StateCurrent))
	want(t, "without settings", unknown, l.keys("unknown", wire.StateCurrent))
	for _, r := range l.listed(camera) {
		if r.State == wire.StateDuplicate && r.DuplicateOf != first.ID {
			t.Errorf("%s duplicates %q", r.ID, r.DuplicateOf)
		}
	}
	duplicates := func() wire.Totals {
		total := l.ledger(camera, wire.DayOf(now), wire.StepDuplicates)
		if wire.DayOf(yesterday.ReceivedAt) != wire.DayOf(now) {
			total = total.Plus(l.ledger(camera, wire.DayOf(yesterday.ReceivedAt), wire.StepDuplicates))
		}
		return total
	}
	l.await("the ledger counts both", func() bool { return duplicates().Objects >= 2 })
	want(t, "duplicates", wire.Totals{Objects: 2, ObjectBytes: 10, Digest: first.Digest.Plus(first.Digest)}, duplicates())

	// The next writer knows from the manifests what there was.
	stop()
	l.run(l.config("b"))
	l.announce(second) // the notice once more
	third := l.send(camera, now.Add(3*time.Second), "frame")
	l.await("the third is removed", func() bool { return slices.Contains(l.keys(camera, wire.StateDuplicate), third.Key) })
	l.await("and gone", func() bool { return len(l.stored(camera)) == 2 })
	want(t, "listed", sorted(first.Key, other.Key), l.keys(camera, wire.StateCurrent))
	l.await("the ledger counts it", func() bool { return l.ledger(camera, wire.DayOf(third.ReceivedAt), wire.StepDuplicates).Objects >= 2 })
}

// If the first of two equal objects is gone from the store, the second stays, and the scrub is asked to look.
func TestDuplicateOfNothingStays(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now()
	first := l.send(camera, now, "frame")
	stop := l.run(l.config("a"))
	l.await("the first is listed", func() bool { return len(l.listed(camera)) == 1 })
	stop()
	if err := l.store.Delete(t.Context(), first.Key); err != nil {
		t.Fatal(err)
	}
	second := l.send(camera, now.Add(time.Second), "frame")
	cfg := l.config("b")
	cfg.ScrubRate = -1 // it would find the same
	l.run(cfg)
	l.await("the second is listed", func() bool { return len(l.listed(camera)) == 2 })
	status := l.kv(wire.StatusBucket(l.site))
	l.await("that the first is missing is reported", func() bool {
		e, err := status.Get(t.Context(), wire.DamageKey(camera, first.ID))
		if err != nil {
			return false
		}
		d, err := wire.Decode[wire.Damage](e.Value())
		return err == nil && d.ID == first.ID && d.Day == wire.DayOf(first.ReceivedAt) && d.Cause == wire.DamageMissing && !d.Confirmed
	})
	want(t, "listed", sorted(first.Key, second.Key), l.keys(camera, wire.StateCurrent))
	want(t, "stored", []string{second.Key}, l.stored(camera))
}

// Objects that were stored and never announced are found, and leftovers of a kill are removed.
func TestSweep(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now()
	var objects []string
	for i := range 5 {
		objects = append(objects, l.putObject(camera, object{now.Add(time.Duration(i-48) * time.Hour), fmt.Sprint("forgotten ", i)}).Key)
	}
	objects = append(objects, l.send(camera, now, "announced").Key)
	put(t, l, "o/thule/"+camera+"/r/2026/11/21/foreign", "not ours")
	put(t, l, wire.StagingKey("thule", camera, "on-its-way"), "half an object")
	cfg := l.config("a")
	stop := l.run(cfg)
	l.await("all are listed", func() bool { return len(l.listed(camera)) == 6 })
	want(t, "listed", sorted(objects...), l.keys(camera, wire.StateCurrent))
	want(t, "stored", 7, len(l.stored(camera)))
	if _, err := l.store.Head(t.Context(), wire.StagingKey("thule", camera, "on-its-way")); err != nil {
		t.Errorf("young staging: %v", err)
	}
	// Found by a later sweep, of recent days only.
	late := l.putObject(camera, object{now.Add(time.Minute), "forgotten later"}).Key
	l.await("the later one is listed", func() bool { return slices.Contains(l.keys(camera, wire.StateCurrent), late) })
	stop()
	_, state, err := stream.Epoch(t.Context(), l.js, wire.NoticeStream("thule"))
	if err != nil {
		t.Fatal(err)
	}
	want(t, "notices", 7, state.Msgs) // nothing that is listed was announced again
}

// Objects that were announced and not listed when the notice stream was deleted are found under any name, though
// the whole bucket was compared just before.
func TestSweepAfterTheNoticeStream(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now().UTC()
	first := l.named(camera, now, "first", "a frame")
	l.run(l.config("a"))
	l.await("the first is listed", func() bool { return slices.Equal(l.keys(camera, wire.StateCurrent), []string{first.Key}) })
	l.await("the whole bucket was compared", func() bool { return l.sweepCursor().Epoch != "" })
	was := l.sweepCursor()
	lost := l.notice(camera, object{now, "lost with the stream"})
	lost.Name, lost.Key = "2nd", wire.NamedKey(l.site, camera, "2nd", 1)
	lost.ID = lost.Key
	l.putNamed(lost, "lost with the stream")
	l.await("recent days are compared", func() bool { return l.sweepCursor().Recent.After(was.Recent.Add(time.Second)) })
	want(t, "listed before", []string{first.Key}, l.keys(camera, wire.StateCurrent))
	l.recreateNotices(nil)
	l.await("it is listed", func() bool { return slices.Equal(l.keys(camera, wire.StateCurrent), sorted(first.Key, lost.Key)) })
}

func (l *lab) sweepCursor() (c wire.SweepCursor) {
	l.t.Helper()
	kv, err := l.js.KeyValue(l.t.Context(), wire.CursorBucket(l.site))
	if err != nil {
		l.t.Fatal(err)
	}
	e, err := kv.Get(l.t.Context(), wire.SweepCursorKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return c
	}
	if err != nil {
		l.t.Fatal(err)
	}
	if c, err = wire.Decode[wire.SweepCursor](e.Value()); err != nil {
		l.t.Fatal(err)
	}
	return c
}

// Two that run at once: one works, the other waits, and a drain hands over.
func TestHandOver(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now()
	stops := map[string]func(){}
	for _, g := range []string{"a", "b", "c"} {
		stops[g] = l.run(l.config(g))
	}
	sent := 0
	for range 3 {
		for range 10 {
			l.send(camera, now.Add(time.Duration(sent)*time.Millisecond), fmt.Sprint("frame ", sent))
			l.telemetry(mag, now, 1)
			sent++
		}
		l.await("objects are listed", func() bool { return len(l.keys(camera, wire.StateCurrent)) == sent })
		stops[l.holder()]()
	}
	l.run(l.config("d"))
	l.await("telemetry is listed", func() bool { return len(l.datagrams(mag)) == sent })
	want(t, "datagrams", numbers(sent, 1), l.datagrams(mag))
}

func (l *lab) holder() string {
	kv, err := l.js.KeyValue(l.t.Context(), wire.LeaseBucket(l.site))
	if err != nil {
		l.t.Fatal(err)
	}
	var holder string
	l.await("somebody holds the lease", func() bool {
		e, err := kv.Get(l.t.Context(), wire.ArchivistLease)
		if err != nil {
			return false
		}
		lease, err := wire.Decode[wire.Lease](e.Value())
		holder = lease.Holder
		return err == nil
	})
	return holder
}

// A duplicate that is listed as such and still stored, whatever came between, is
// removed by the sweep, unless what it duplicates is gone: then it is listed again.
func TestSweepFinishesDuplicates(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now().UTC()
	first := l.putObject(camera, object{now, "frame"})
	duplicate := l.putObject(camera, object{now.Add(time.Second), "frame"})
	orphan := l.putObject(camera, object{now.Add(2 * time.Second), "another frame"})
	duplicate.State, duplicate.DuplicateOf = wire.StateDuplicate, first.ID
	orphan.State, orphan.DuplicateOf = wire.StateDuplicate, l.notice(camera, object{now.Add(-time.Second), "another frame"}).ID
	byDay := map[wire.Day][]wire.Record{}
	for _, r := range []wire.Record{first.Record, duplicate.Record, orphan.Record} {
		byDay[wire.DayOf(r.ReceivedAt)] = append(byDay[wire.DayOf(r.ReceivedAt)], r)
	}
	for day, records := range byDay {
		data, err := wire.Manifest{Header: wire.ManifestHeader{Site: l.site, Instrument: camera, Day: day}, Records: records}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		put(t, l, wire.ManifestPartKey(l.site, camera, day, 1), string(data))
	}
	cfg := l.config("a")
	l.run(cfg)
	l.await("the duplicate is gone", func() bool { return !slices.Contains(l.stored(camera), duplicate.Key) })
	l.await("the orphan is found", func() bool { return gauge(t, cfg, "substorm_sweep_found_total") >= 2 })
	want(t, "stored", sorted(first.Key, orphan.Key), l.stored(camera))
	l.await("the orphan is listed as an object of its own", func() bool { return len(l.keys(camera, wire.StateCurrent)) == 2 })
	want(t, "listed", sorted(first.Key, orphan.Key), l.keys(camera, wire.StateCurrent))
	want(t, "IDs", sorted(first.ID, wire.OrphanID(orphan)), l.ids(camera, wire.StateCurrent))
	// JetStream is new to this archive: all that its manifests list is announced again, the removal
	// too, which a second time would be a duplicate. The orphan is announced once.
	notices := func() uint64 { return l.state(wire.NoticeStream(l.site)).Msgs }
	l.await("all is announced anew", func() bool { return notices() >= 4 })
	want(t, "notices", 4, notices())
}
