// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// in returns the record in another state, for a reason.
func in(state wire.State, name, reason string) wire.Record {
	r := record(name)
	r.State, r.Reason = state, reason
	return r
}

// The last line that changes an object holds, wherever the others stand; what was
// is a duplicate stays one.
func TestChanges(t *testing.T) {
	store := testenv.SharedBucket(t)
	read := func() map[string]string {
		t.Helper()
		found := map[string]string{}
		for r, err := range manifest.Records(t.Context(), store, site, instrument, day) {
			if err != nil {
				t.Fatal(err)
			}
			if _, twice := found[r.ID]; twice {
				t.Errorf("%s is listed twice", r.ID)
			}
			found[r.ID] = string(r.State) + " " + r.Reason
		}
		return found
	}
	want := func(want map[string]string) {
		t.Helper()
		if diff := cmp.Diff(want, read()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	put(t, store, part(1), wire.ManifestHeader{}, record("a"), record("b"), record("c"), record("d"), record("e"))
	put(t, store, part(2), wire.ManifestHeader{}, in(wire.StateSuperseded, "a", ""), in(wire.StateRetracted, "b", "dark"),
		in(wire.StateRetracted, "d", "dark"), marked("e", "a"))
	want(map[string]string{"a": "Superseded ", "b": "Retracted dark", "c": "Current ", "d": "Retracted dark", "e": "Duplicate "})

	// Twice in one part, once more in a later one; a late duplicate of the first line changes nothing.
	put(t, store, part(3), wire.ManifestHeader{}, in(wire.StateRetracted, "a", "first"), in(wire.StateRetracted, "a", "second"),
		in(wire.StateRetracted, "e", "too late"), marked("d", "a"))
	put(t, store, part(10), wire.ManifestHeader{}, record("b"), record("a"), record("f"))
	all := map[string]string{"a": "Retracted second", "b": "Retracted dark", "c": "Current ", "d": "Duplicate ", "e": "Duplicate ", "f": "Current "}
	want(all)
	day1, err := manifest.Summarize(t.Context(), store, site, instrument, day)
	if err != nil {
		t.Fatal(err)
	}
	if day1.Entries != 8 || day1.Duplicates != 2 || day1.Version != 0 || day1.Digest != nil {
		t.Errorf("%+v", day1)
	}

	// Compacted, and changed again.
	var lines []wire.Record
	for r, err := range manifest.Records(t.Context(), store, site, instrument, day) {
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, r)
	}
	put(t, store, version(1), wire.ManifestHeader{Replaces: []string{part(1), part(2), part(3), part(10)}}, lines...)
	want(all)
	put(t, store, part(11), wire.ManifestHeader{}, in(wire.StateRetracted, "c", "late"))
	all["c"] = "Retracted late"
	want(all)
	kept := names(t, manifest.Day(t.Context(), store, site, instrument, day))
	if len(kept) != 4 {
		t.Errorf("kept: %v", kept)
	}

	got, err := manifest.Summarize(t.Context(), store, site, instrument, day)
	if err != nil {
		t.Fatal(err)
	}
	info := fetch(t, store, version(1))
	digest := wire.Digest(sha256.Sum256(info))
	wanted := wire.RootDay{Day: day, Version: 1, Digest: &digest, Parts: wire.PartNumbers{{11, 11}}, Entries: 4, Duplicates: 2, Bytes: 4}
	wanted.AddFile(version(1), int64(len(info)))
	wanted.AddFile(part(11), int64(len(fetch(t, store, part(11)))))
	got.Dirs, got.FirstPath, got.LastPath = nil, "", ""
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	files, err := manifest.List(t.Context(), store, site, instrument, day)
	if err != nil || !files.Known(day).Same(got) {
		t.Errorf("%+v, %v", files.Known(day), err)
	}
	if diff := cmp.Diff(files.InEffect, got.Keys(site, instrument)); diff != "" {
		t.Error(diff)
	}
	again := map[string]string{}
	for r, err := range manifest.RecordsOf(t.Context(), store, got.Keys(site, instrument)) {
		if err != nil {
			t.Fatal(err)
		}
		again[r.ID] = string(r.State) + " " + r.Reason
	}
	if diff := cmp.Diff(all, again); diff != "" {
		t.Errorf("by keys (-want +got):\n%s", diff)
	}
	if err := firstError(manifest.RecordsOf(t.Context(), store, []string{part(99)})); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func fetch(t *testing.T, store objectstore.Store, key string) []byte {
	t.Helper()
	body, _, err := store.Get(t.Context(), key, objectstore.All)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(body); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A summary that continues another is the same as one of everything.
func TestSummary(t *testing.T) {
	at := time.Date(2026, 11, 21, 6, 0, 0, 0, time.UTC)
	var records []wire.Record
	for i := range 40 {
		r := record(fmt.Sprintf("object-%02d", i))
		r.Path = fmt.Sprintf("2026/%02d/frame-%02d.jpg", 11+i/20, (i*7)%40)
		if i%3 == 0 {
			from, to := at.Add(-time.Duration(i)*time.Minute), at.Add(time.Duration(i)*time.Minute)
			r.ObservedFrom, r.ObservedTo = &from, &to
		}
		records = append(records, r)
	}
	records = append(records, marked("object-03", "object-01"), in(wire.StateRetracted, "object-04", "dark"), in(wire.StatePurged, "object-05", ""))
	whole := manifest.NewSummary(wire.RootDay{Day: day})
	halves := manifest.NewSummary(wire.RootDay{Day: day})
	for i, r := range records {
		whole.Add(r)
		halves.Add(r)
		if i == 20 {
			halves.Part(1, "part 1", 1)
			halves = manifest.NewSummary(halves.Day())
		}
	}
	whole.Part(2, "part 2", 2)
	whole.Part(1, "part 1", 1)
	halves.Part(2, "part 2", 2)
	if diff := cmp.Diff(whole.Day(), halves.Day()); diff != "" {
		t.Errorf("(-whole +halves):\n%s", diff)
	}
	d := whole.Day()
	if d.Entries != 40 || d.Duplicates != 1 || d.Bytes != 39*9 || !d.ObservedFrom.Equal(at.Add(-39*time.Minute)) || !d.ObservedTo.Equal(at.Add(39*time.Minute)) {
		t.Errorf("%+v", d)
	}
	if d.FirstPath != "2026/11/frame-01.jpg" && d.FirstPath != "2026/11/frame-00.jpg" {
		t.Errorf("first path %q", d.FirstPath)
	}
	for path, may := range map[string]bool{"2026/11/frame-07.jpg": true, "2026/11/frame-08x.jpg": true, "2026/13/frame-07.jpg": false,
		"2026/11/a.jpg": false, "2026/frame.jpg": false, "": false} {
		if got := manifest.MayHoldPath(d, path); got != may {
			t.Errorf("may hold %q: %t", path, got)
		}
	}
}

// Folders that are too many, or too long, are cut to where they are not.
func TestManyFolders(t *testing.T) {
	s := manifest.NewSummary(wire.RootDay{Day: day})
	for i := range 4000 {
		r := record(fmt.Sprint(i))
		r.Path = fmt.Sprintf("%02d/%03d/%05d/frame.jpg", i%40, i%400, i)
		s.Add(r)
		if i%777 == 0 {
			s = manifest.NewSummary(s.Day())
		}
	}
	d := s.Day()
	if len(d.Dirs) != 400 || !d.Deeper {
		t.Fatalf("%d folders, deeper %t", len(d.Dirs), d.Deeper)
	}
	for path, may := range map[string]bool{"01/001/00001/frame.jpg": true, "01/001/99999/frame.jpg": true, "01/002/00001/frame.jpg": false, "01/x.jpg": false} {
		if got := manifest.MayHoldPath(d, path); got != may {
			t.Errorf("may hold %q: %t", path, got)
		}
	}
	long := manifest.NewSummary(wire.RootDay{Day: day})
	for i := range 500 {
		r := record(fmt.Sprint(i))
		r.Path = fmt.Sprintf("a/%0240d/x", i)
		long.Add(r)
	}
	if d := long.Day(); len(d.Dirs) != 1 || d.Dirs[0] != "a" || !d.Deeper {
		t.Errorf("%d folders, deeper %t", len(d.Dirs), d.Deeper)
	}
}

func TestReadRoot(t *testing.T) {
	store := testenv.SharedBucket(t)
	root := wire.Root{Header: wire.RootHeader{Format: wire.Format, Site: site, Instrument: instrument, Number: 3, Days: 1, Writer: "gateway-0", Incarnation: "one"},
		Days: []wire.RootDay{{Day: day, Version: 1}}}
	data, err := root.Encode()
	if err != nil {
		t.Fatal(err)
	}
	putBytes(t, store, wire.RootKey(site, instrument, 3), data)
	putBytes(t, store, wire.RootKey(site, instrument, 4), data)
	got, err := manifest.ReadRoot(t.Context(), store, site, instrument, 3)
	if diff := cmp.Diff(root, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := manifest.ReadRoot(t.Context(), store, site, instrument, 4); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("one with another's number: %v", err)
	}
	if _, err := manifest.ReadRoot(t.Context(), store, site, instrument, 5); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("one that is not there: %v", err)
	}
	put(t, store, part(1), wire.ManifestHeader{}, record("a"))
	days := 0
	for d, err := range manifest.Days(t.Context(), store, site, instrument) {
		if err != nil || d != day {
			t.Errorf("%s, %v", d, err)
		}
		days++
	}
	if days != 1 {
		t.Errorf("with roots beside them there are %d days", days)
	}
	merged := manifest.MergeDays(root.Days, []wire.RootDay{{Day: "2026-11-20"}, {Day: day, Version: 2}})
	if diff := cmp.Diff([]wire.RootDay{{Day: "2026-11-20"}, {Day: day, Version: 2}}, merged); diff != "" {
		t.Error(diff)
	}
}

// A retracted object can be restored, a purged one cannot; and an object lies where its
// first line says, though a line that changed it was written while it moved.
func TestRestoredAndPurged(t *testing.T) {
	store := testenv.SharedBucket(t)
	at := time.Date(2026, 11, 21, 6, 0, 0, 0, time.UTC)
	restored := func(name string) wire.Record {
		r := in(wire.StateCurrent, name, "restored")
		r.RestoredAt = &at
		return r
	}
	moved := record("a")
	moved.Key, moved.Offset, moved.Length = "packs/new", 512, moved.Size
	stale := in(wire.StateRetracted, "a", "dark")
	stale.Key, stale.Offset, stale.Length = "packs/old", 1536, stale.Size
	put(t, store, version(1), wire.ManifestHeader{}, moved, record("b"), record("c"), record("d"), record("e"))
	put(t, store, part(1), wire.ManifestHeader{}, stale, in(wire.StateRetracted, "b", "dark"), in(wire.StateRetracted, "c", "dark"),
		in(wire.StatePurged, "d", "private"), marked("e", "a"))
	put(t, store, part(2), wire.ManifestHeader{}, restored("b"), restored("c"), in(wire.StatePurged, "e", "too late"), in(wire.StateSuperseded, "d", "too late"))
	put(t, store, part(3), wire.ManifestHeader{}, in(wire.StateRetracted, "c", "again"), restored("d"), record("b"))
	found := map[string]string{}
	for r, err := range manifest.Records(t.Context(), store, site, instrument, day) {
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := found[r.ID]; twice {
			t.Errorf("%s is listed twice", r.ID)
		}
		found[r.ID] = string(r.State) + " " + r.Reason
		if r.ID == "a" && (r.Key != moved.Key || r.Offset != moved.Offset || r.Length != moved.Length) {
			t.Errorf("it lies at %s, %d, %d", r.Key, r.Offset, r.Length)
		}
	}
	want := map[string]string{"a": "Retracted dark", "b": "Current restored", "c": "Retracted again", "d": "Purged private", "e": "Duplicate "}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Changes hold by part, not by the time they were written; a duplicate or purged object
// stays so, and changes that are written twice are there once.
func TestReadChanges(t *testing.T) {
	store := testenv.SharedBucket(t)
	header := wire.ManifestHeader{Site: site, Instrument: instrument, Day: day, Writer: "gateway-0", Incarnation: "1"}
	putChanges := func(part int, records ...wire.Record) {
		t.Helper()
		if err := manifest.PutChanges(t.Context(), store, header, part, records); err != nil {
			t.Fatal(err)
		}
	}
	putChanges(1)
	putChanges(10, in(wire.StateCurrent, "a", "restored"), in(wire.StateRetracted, "c", "again"))
	putChanges(2, in(wire.StateRetracted, "a", "dark"), in(wire.StateRetracted, "b", "dark"), in(wire.StatePurged, "c", "private"), marked("d", "a"))
	putChanges(2, in(wire.StateRetracted, "a", "dark"), in(wire.StateRetracted, "b", "dark"), in(wire.StatePurged, "c", "private"), marked("d", "a"))
	putChanges(11, in(wire.StatePurged, "d", "not any more"))
	got, err := manifest.ReadChanges(t.Context(), store, site, instrument, day)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for id, r := range got.Records {
		found[id] = string(r.State) + " " + r.Reason
	}
	want := map[string]string{"a": "Current restored", "b": "Retracted dark", "c": "Purged private", "d": "Duplicate "}
	if diff := cmp.Diff(want, found); diff != "" || got.LastPart != 11 {
		t.Errorf("last part %d, (-want +got):\n%s", got.LastPart, diff)
	}
	files := 0
	for _, err := range store.List(t.Context(), wire.ChangesPrefix(site, instrument, day), "") {
		if err != nil {
			t.Fatal(err)
		}
		files++
	}
	if files != 3 {
		t.Errorf("%d files, want 3", files)
	}

	// A file that is none of changes, or cannot be read, is reported and hides nothing else.
	foreign := wire.ChangesPrefix(site, instrument, day) + "foreign"
	damaged := wire.ChangesKey(site, instrument, day, 12, wire.Digest{1})
	others := wire.ChangesKey(site, instrument, day, 3, wire.Digest{2})
	putBytes(t, store, foreign, []byte("x"))
	putBytes(t, store, damaged, []byte("x"))
	put(t, store, others, wire.ManifestHeader{Site: site, Instrument: instrument, Day: "2026-11-22"}, in(wire.StateRetracted, "a", "of another day"))
	if got, err = manifest.ReadChanges(t.Context(), store, site, instrument, day); err != nil {
		t.Fatal(err)
	}
	if len(got.Records) != 4 || got.Records["a"].Reason != "restored" || got.LastPart != 12 {
		t.Errorf("with foreign keys: %+v", got)
	}
	if diff := cmp.Diff([][]string{{foreign}, {others, damaged}}, [][]string{got.Foreign, got.Unreadable}); diff != "" {
		t.Errorf("foreign and unreadable keys (-want +got):\n%s", diff)
	}
	putBytes(t, store, wire.ChangesKey(site, instrument, day, 13, wire.Digest{3}), compress(t, `{"format":2,"entries":"many"}`+"\n"))
	if _, err := manifest.ReadChanges(t.Context(), store, site, instrument, day); !errors.Is(err, wire.ErrNewerFormat) {
		t.Errorf("changes of a newer format: %v", err)
	}
}
