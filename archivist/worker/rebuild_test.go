// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/naming"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// published stores and announces an object whose metadata knows its path, as a
// gateway does.
func (l *lab) published(instrument string, at time.Time, body string) wire.Notice {
	l.t.Helper()
	e, _ := l.setting(instrument)
	template, err := naming.Parse(e.Naming)
	if err != nil {
		l.t.Fatal(err)
	}
	n := l.notice(instrument, object{at, body})
	n.Path = objectpath.Path(template, instrument, e.Station, n.Record, 0)
	l.putNamed(n, body)
	l.announce(n)
	return n
}

// everything returns the lines of all manifests by instrument and ID, as JSON
// without the place of the bytes.
func (l *lab) everything() map[string]string {
	l.t.Helper()
	all := map[string]string{}
	for instrument, err := range manifest.Instruments(l.t.Context(), l.store, l.site) {
		if err != nil {
			l.t.Fatal(err)
		}
		for _, r := range l.listed(instrument) {
			if r.State == wire.StateCurrent || r.State == wire.StateSuperseded || r.State == wire.StateRetracted {
				l.reads(r)
			}
			text, err := json.Marshal(r)
			if err != nil {
				l.t.Fatal(err)
			}
			all[instrument+" "+r.ID] = string(text)
		}
	}
	return all
}

// reads compares the bytes where a record says with its digest.
func (l *lab) reads(r wire.Record) {
	l.t.Helper()
	body, err := objectpath.Open(l.t.Context(), l.store, r)
	if err == nil {
		defer body.Close()
		_, err = io.Copy(io.Discard, body)
	}
	if err != nil {
		l.t.Errorf("%s, listed at %s from %d: %v", r.ID, r.Key, r.Offset, err)
	}
}

func (l *lab) lose(prefix string) {
	l.t.Helper()
	for info, err := range l.store.List(l.t.Context(), prefix, "") {
		if err == nil {
			err = l.store.Delete(l.t.Context(), info.Key)
		}
		if err != nil {
			l.t.Fatal(err)
		}
	}
}

// rebuild rebuilds the manifests, and returns what differed.
func (l *lab) rebuild() []bucket.Difference {
	l.t.Helper()
	found, err := bucket.Scan(l.t.Context(), bucket.Config{Store: l.store, Site: l.site, ScratchDir: l.t.TempDir(),
		Foreign: func(key string, err error) { l.t.Errorf("%s: %v", key, err) }})
	if err != nil {
		l.t.Fatal(err)
	}
	defer found.Close()
	var all []bucket.Difference
	for _, of := range l.lists(found) {
		merged, err := found.Merge(l.t.Context(), of, time.Time{})
		if err != nil {
			l.t.Fatal(err)
		}
		p, err := bucket.Compare(l.t.Context(), l.store, l.site, merged)
		if err != nil {
			l.t.Fatal(err)
		}
		if p.Changes() {
			if err := p.Apply(l.t.Context(), l.store, wire.ManifestHeader{Site: l.site, Writer: "test", Incarnation: "1"}, l.t.TempDir(), 1); err != nil {
				l.t.Fatal(err)
			}
		}
		all = append(all, p.Differences...)
		p.Close()
	}
	return all
}

// lists are those that were found and those that are listed.
func (l *lab) lists(found *bucket.Found) []bucket.List {
	l.t.Helper()
	lists := found.Lists()
	for instrument, err := range manifest.Instruments(l.t.Context(), l.store, l.site) {
		if err != nil {
			l.t.Fatal(err)
		}
		for day, err := range manifest.Days(l.t.Context(), l.store, l.site, instrument) {
			if err != nil {
				l.t.Fatal(err)
			}
			lists = append(lists, bucket.List{Instrument: instrument, Day: day})
		}
	}
	slices.SortFunc(lists, bucket.List.Compare)
	return slices.Compact(lists)
}

// tell writes down what only manifests say.
func (l *lab) tell() {
	l.t.Helper()
	found, err := bucket.Scan(l.t.Context(), bucket.Config{Store: l.store, Site: l.site, ScratchDir: l.t.TempDir()})
	if err != nil {
		l.t.Fatal(err)
	}
	defer found.Close()
	for _, of := range l.lists(found) {
		merged, err := found.Merge(l.t.Context(), of, time.Time{})
		if err != nil {
			l.t.Fatal(err)
		}
		p, err := bucket.Compare(l.t.Context(), l.store, l.site, merged)
		if err != nil {
			l.t.Fatal(err)
		}
		if _, err := p.Tell(l.t.Context(), l.store, wire.ManifestHeader{Site: l.site, Writer: "test", Incarnation: "1"}); err != nil {
			l.t.Fatal(err)
		}
		p.Close()
	}
}

// Manifests that are lost are rebuilt from the bucket alone, record by record as they were: raw
// objects, members of packs, segments, versions, duplicates, given paths, retracted objects, and
// objects imported in place.
func TestRebuild(t *testing.T) {
	l := start(t).site(t, "thule")
	const numbered, sonde = "numbered-1", "sonde"
	l.settings[camera] = wire.InstrumentEntry{Instrument: camera, RepeatWindowMillis: (24 * time.Hour).Milliseconds(), PackBelow: 1 << 10}
	l.settings[numbered] = wire.InstrumentEntry{Instrument: numbered, Naming: "{year}{doy}/{sequence}.fits"}
	l.settings["clash-1"] = wire.InstrumentEntry{Instrument: "clash-1", Station: "rank", Naming: "{year}/{month}/{day}/{station}-{digest:8}.fits.gz"}
	now := time.Now().UTC()
	old := now.Add(-72 * time.Hour).Truncate(24 * time.Hour).Add(12 * time.Hour)
	at := func(day time.Time, i int) time.Time { return day.Add(time.Duration(i) * 10 * time.Millisecond) }

	cfg := l.keeper("a")
	cfg.CompactInterval, cfg.CompactGrace = 200*time.Millisecond, time.Millisecond
	cfg.CompactAfter = time.Hour
	stop := l.run(cfg)
	var dark wire.Notice
	var members, raws []wire.Notice
	for _, day := range []time.Time{old, now} {
		number := uint64(day.Unix())
		packed := l.putPack(number, sent{camera, object{at(day, 0), "one " + day.String()}}, sent{sonde, object{at(day, 1), "two"}},
			sent{camera, object{at(day, 2), "three " + day.String()}}, sent{camera, object{at(day, 3), "one " + day.String()}})
		for _, n := range packed {
			l.announce(n)
		}
		members, raws = append(members, packed...), append(raws, l.send(camera, at(day, 10), "raw "+day.String()))
		l.send(camera, at(day, 11), "raw "+day.String()) // a duplicate
		dark = l.send(camera, at(day, 12), "dark "+day.String())
		first := l.named(camera, at(day, 13), day.Format("0102")+"/a", "named "+day.String())
		second := l.notice(camera, object{at(day, 14), "corrected " + day.String()})
		second.Name, second.Version, second.Supersedes = first.Name, 2, first.ID
		second.Key = wire.NamedKey(l.site, camera, first.Name, 2)
		second.ID = second.Key
		l.putNamed(second, "corrected "+day.String())
		l.announce(second)
		for i := range 3 {
			l.published(numbered, at(day, 20+i), string(rune('a'+i))+day.String())
		}
		l.published("clash-1", at(day, 30), "same "+day.String())
		l.published("clash-1", at(day, 31), "same "+day.String())
		l.telemetry(mag, at(day, 40), 3)
		l.announce(l.inPlace("old tree/"+day.Format("0102")+".fits", "imported "+day.String(), at(day, 50)))
	}
	// Each day has four members, two raw, one of them twice, dark, two versions and an imported one.
	l.await("all is listed", func() bool {
		return len(l.listed(camera)) == 2*9 && len(l.listed(numbered)) == 6 && len(l.listed("clash-1")) == 4 && len(l.datagrams(mag)) == 6
	})
	l.ask(dark, wire.StateRetracted, "the shutter was closed")
	l.await("it is retracted", func() bool { return len(l.keys(camera, wire.StateRetracted)) == 1 })
	oldDay := wire.DayOf(old)
	l.await("the old day is compacted", func() bool {
		for _, instrument := range []string{camera, sonde, numbered, mag, "clash-1"} {
			files, err := manifest.List(t.Context(), l.store, l.site, instrument, oldDay)
			if err != nil || files.CompactedAt.IsZero() || len(files.InEffect) != 1 {
				return false
			}
		}
		for info, err := range l.store.List(t.Context(), wire.PackPrefix(l.site, oldDay), "") {
			if name, bad := wire.ParsePackKey(info.Key); err != nil || bad != nil || !name.Compacted() {
				return false
			}
		}
		return true
	})
	// Restored, purged from a pack of today, from a compacted one, and as an object of its own.
	l.ask(raws[1], wire.StateRetracted, "too bright")
	l.await("one more is retracted", func() bool { return l.is(raws[1].ID, wire.StateRetracted) })
	l.ask(raws[1], wire.StateCurrent, "it was an aurora")
	purged := []wire.Notice{members[0], members[6], dark}
	for _, n := range purged {
		l.ask(n, wire.StatePurged, "a person is on it")
	}
	l.await("one is restored, and others are gone", func() bool {
		return l.is(raws[1].ID, wire.StateCurrent) && len(l.keys(camera, wire.StatePurged)) == len(purged) && len(l.removals()) == 0
	})
	l.ask(raws[0], wire.StateRetracted, "the shutter was closed")
	l.await("one is retracted", func() bool { return l.is(raws[0].ID, wire.StateRetracted) })
	stop()
	before := l.everything()
	if n := len(l.keys(camera, wire.StateDuplicate)); n != 4 {
		t.Fatalf("%d duplicates, want 4", n)
	}
	if n := len(l.keys(camera, wire.StateSuperseded)); n != 2 {
		t.Fatalf("%d superseded, want 2", n)
	}

	if found := l.rebuild(); len(found) > 0 {
		t.Errorf("manifests and bucket differ: %+v", found)
	}
	l.lose(wire.ManifestSitePrefix(l.site))
	if n := len(l.rebuild()); n != len(before) {
		t.Errorf("%d objects were not listed, want %d", n, len(before))
	}
	want(t, "the lines", before, l.everything())

	// An archive of before there were changes: what manifests say is written down, and
	// then they can be lost.
	l.lose(wire.ChangesSitePrefix(l.site))
	l.tell()
	l.lose(wire.ManifestSitePrefix(l.site))
	l.rebuild()
	want(t, "the lines of an older archive", before, l.everything())

	// The archive continues: nothing is announced again, and new objects are listed once.
	_, was, err := stream.Epoch(t.Context(), l.js, wire.NoticeStream(l.site))
	if err != nil {
		t.Fatal(err)
	}
	stop = l.run(l.config("b"))
	l.announce(dark)
	late := l.send(camera, at(now, 60), "after the rebuild")
	l.await("it is listed", func() bool { return slices.Contains(l.keys(camera, wire.StateCurrent), late.Key) })
	forgotten := l.putObject(camera, object{at(now, 61), "never announced"})
	l.await("a sweep went by", func() bool { return slices.Contains(l.keys(camera, wire.StateCurrent), forgotten.Key) })
	stop()
	after := l.everything()
	for _, n := range []wire.Notice{late, forgotten} {
		delete(after, camera+" "+n.ID)
	}
	want(t, "the lines of before", before, after)
	_, is, err := stream.Epoch(t.Context(), l.js, wire.NoticeStream(l.site))
	if err != nil {
		t.Fatal(err)
	}
	want(t, "notices", was.LastSeq+2, is.LastSeq) // the retraction is a duplicate of the message

	// No part that comes from then on has the number of a part that has changes.
	l.lose(wire.ManifestSitePrefix(l.site))
	l.rebuild()
	changes, err := manifest.ReadChanges(t.Context(), l.store, l.site, camera, wire.DayOf(now))
	if err != nil {
		t.Fatal(err)
	}
	files, err := manifest.List(t.Context(), l.store, l.site, camera, wire.DayOf(now))
	if err != nil || files.NextPart <= changes.LastPart {
		t.Errorf("the next part is %d, changes are of part %d: %v", files.NextPart, changes.LastPart, err)
	}
}

// A file of a manifest that cannot be read, a day that lacks some, and an object that
// is gone: what is known is listed.
func TestRebuildOfParts(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now().UTC()
	day := wire.DayOf(now)
	stop := l.run(l.config("a"))
	first := l.send(camera, now, "first")
	l.await("the first is listed", func() bool { return len(l.listed(camera)) == 1 })
	second := l.send(camera, now.Add(time.Millisecond), "second")
	l.await("the second is listed", func() bool { return len(l.listed(camera)) == 2 })
	gone := l.send(camera, now.Add(2*time.Millisecond), "gone")
	l.await("the third is listed", func() bool { return len(l.listed(camera)) == 3 })
	stop()
	files, err := manifest.List(t.Context(), l.store, l.site, camera, day)
	if err != nil || len(files.InEffect) != 3 {
		t.Fatalf("%+v, %v", files, err)
	}
	if err := l.store.Delete(t.Context(), files.InEffect[0]); err != nil {
		t.Fatal(err)
	}
	put(t, l, "junk", "x")
	if err := l.store.Copy(t.Context(), "junk", files.InEffect[1], objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := l.store.Delete(t.Context(), gone.Key); err != nil {
		t.Fatal(err)
	}
	moved := l.putObject("mover", object{now, "it lies elsewhere than listed"}).Record
	elsewhere := moved
	elsewhere.Key, elsewhere.Offset, elsewhere.Length = wire.PackKey(l.site, now, "gateway-0", "incarnation1", 1), 1024, moved.Size
	data, err := wire.Manifest{Header: wire.ManifestHeader{Site: l.site, Instrument: "mover", Day: day}, Records: []wire.Record{elsewhere}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	l.put(wire.ManifestPartKey(l.site, "mover", day, 1), data)
	kinds := map[bucket.DifferenceKind]int{}
	for _, d := range l.rebuild() {
		kinds[d.Kind]++
	}
	want(t, "differences", map[bucket.DifferenceKind]int{bucket.Unlisted: 2, bucket.Missing: 1, bucket.Unreadable: 1, bucket.Moved: 1}, kinds)
	want(t, "listed", sorted(first.Key, second.Key, gone.Key), l.keys(camera, wire.StateCurrent))
	if got := l.listed("mover"); len(got) != 1 || got[0].Key != moved.Key || got[0].InPack() {
		t.Errorf("the one that lies elsewhere: %+v", got)
	} else {
		l.reads(got[0])
	}
	kinds = map[bucket.DifferenceKind]int{}
	for _, d := range l.rebuild() {
		kinds[d.Kind]++
	}
	want(t, "differences of a second time", map[bucket.DifferenceKind]int{bucket.Missing: 1}, kinds)
}

// A rebuild under a running archivist: the archivist continues, and rebuilds the index when it is
// notified that the index does not know all.
func TestRebuildUnderAnArchivist(t *testing.T) {
	l := start(t).site(t, "thule")
	kv := l.indexBucket()
	now := time.Now().UTC()
	l.run(l.config("a"))
	for i := range 3 {
		l.send(camera, now.Add(time.Duration(i)*time.Millisecond), fmt.Sprint("frame ", i))
	}
	entries := func() (version, entries int) {
		for _, d := range l.index(camera).Open {
			if d.Day == wire.DayOf(now) {
				return d.Version, d.Entries
			}
		}
		return 0, 0
	}
	complete := func() bool {
		_, err := kv.Get(t.Context(), wire.IndexListedKey)
		return err == nil
	}
	l.await("they are in the index", func() bool { _, n := entries(); return n == 3 && complete() })
	l.lose(wire.ManifestSitePrefix(l.site))
	if n := len(l.rebuild()); n != 3 {
		t.Errorf("%d were not listed, want 3", n)
	}
	if err := kv.Delete(t.Context(), wire.IndexListedKey); err != nil {
		t.Fatal(err)
	}
	last := l.send(camera, now.Add(time.Second), "one more")
	l.await("the index is made anew", func() bool { version, n := entries(); return version == 1 && n == 4 && complete() })
	c := l.catalog()
	l.await("readers see it", func() bool { return slices.Equal(l.catalogued(c, camera), l.manifested(camera)) })
	if !slices.Contains(l.manifested(camera), last.ID+" "+string(wire.StateCurrent)) {
		t.Errorf("listed are %q", l.manifested(camera))
	}
}
