// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const (
	site       = "thule"
	instrument = "allsky-1"
	day        = wire.Day("2026-11-21")
)

// noSizes leaves out how large files are.
var noSizes = cmpopts.IgnoreFields(manifest.Files{}, "Sizes")

func record(name string) wire.Record {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	digest := wire.Digest(sha256.Sum256([]byte(name)))
	return wire.Record{ID: name, Key: wire.RawKey(site, instrument, at, digest), Size: int64(len(name)), Digest: digest,
		State: wire.StateCurrent, ReceivedAt: at, TimeSource: wire.TimeSourceReceived}
}

func marked(name, of string) wire.Record {
	r := record(name)
	r.State, r.DuplicateOf = wire.StateDuplicate, of
	return r
}

func put(t *testing.T, store objectstore.Store, key string, header wire.ManifestHeader, records ...wire.Record) {
	t.Helper()
	if header.Site == "" {
		header.Site, header.Instrument, header.Day = site, instrument, day
	}
	data, err := wire.Manifest{Header: header, Records: records}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	putBytes(t, store, key, data)
}

func putBytes(t *testing.T, store objectstore.Store, key string, data []byte) {
	t.Helper()
	err := store.Put(t.Context(), key, bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{CreateOnly: true})
	if err != nil {
		t.Fatal(err)
	}
}

func part(n int) string    { return wire.ManifestPartKey(site, instrument, day, n) }
func version(n int) string { return wire.ManifestVersionKey(site, instrument, day, n) }

func names(t *testing.T, records iter.Seq2[wire.Record, error]) []string {
	t.Helper()
	var all []string
	for r, err := range records {
		if err != nil {
			t.Fatal(err)
		}
		name := r.ID
		if r.State == wire.StateDuplicate {
			name += " duplicates " + r.DuplicateOf
		}
		all = append(all, name)
	}
	return all
}

func TestDay(t *testing.T) {
	store := testenv.SharedBucket(t)
	ctx := t.Context()
	read := func() []string { return names(t, manifest.Day(ctx, store, site, instrument, day)) }
	all := func() []string { return names(t, manifest.Records(ctx, store, site, instrument, day)) }
	want := func(got []string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}

	want(read())
	put(t, store, part(1), wire.ManifestHeader{}, record("a"), record("b"))
	put(t, store, part(2), wire.ManifestHeader{}, record("c"), marked("d", "a"))
	want(read(), "a", "b", "c")
	want(all(), "a", "b", "c", "d duplicates a")

	// An object that two parts list is listed once, and a duplicate wins wherever it stands.
	put(t, store, part(10), wire.ManifestHeader{}, record("c"), marked("b", "x"), record("e"))
	want(read(), "a", "c", "e")
	want(all(), "a", "c", "d duplicates a", "b duplicates x", "e")

	// A compacted day stands for the parts that it names, and only for those.
	put(t, store, version(1), wire.ManifestHeader{Replaces: []string{part(1)}}, record("a"), record("b"))
	want(all(), "a", "c", "d duplicates a", "b duplicates x", "e")
	put(t, store, version(2), wire.ManifestHeader{Replaces: []string{part(1), part(2), part(10)}}, record("a2"), marked("d", "a"))
	want(read(), "a2")
	put(t, store, part(11), wire.ManifestHeader{}, record("late"))
	want(all(), "a2", "d duplicates a", "late")

	files, err := manifest.List(ctx, store, site, instrument, day)
	if err != nil {
		t.Fatal(err)
	}
	if files.CompactedAt.IsZero() {
		t.Error("nothing says when the day was compacted")
	}
	files.CompactedAt = time.Time{}
	if diff := cmp.Diff(manifest.Files{InEffect: []string{version(2), part(11)}, NextPart: 12, NextVersion: 3,
		Replaced: []string{part(1), part(2), part(10)}}, files, noSizes); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestDaysAndInstruments(t *testing.T) {
	store := testenv.SharedBucket(t)
	ctx := t.Context()
	for _, i := range []string{"allsky-1", "mag-1"} {
		for _, d := range []wire.Day{"2026-11-21", "2025-01-02"} {
			put(t, store, wire.ManifestPartKey(site, i, d, 1), wire.ManifestHeader{Site: site, Instrument: i, Day: d}, record("a"))
		}
	}
	put(t, store, wire.ManifestPartKey("other", "lidar", day, 1), wire.ManifestHeader{}, record("a"))
	var found []string
	for i, err := range manifest.Instruments(ctx, store, site) {
		if err != nil {
			t.Fatal(err)
		}
		for d, err := range manifest.Days(ctx, store, site, i) {
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, i+" "+string(d))
		}
	}
	want := []string{"allsky-1 2025-01-02", "allsky-1 2026-11-21", "mag-1 2025-01-02", "mag-1 2026-11-21"}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A day with more than is kept in memory reads the same.
func TestLargeDay(t *testing.T) {
	store := testenv.SharedBucket(t)
	noise := func(i int) string { // hardly compresses
		var s string
		for j := range 64 {
			s += wire.Digest(sha256.Sum256(fmt.Appendf(nil, "%d/%d", i, j))).String()
		}
		return s
	}
	count := 0
	for n := 1; n <= 12; n++ {
		var records []wire.Record
		for range 1000 {
			r := record(fmt.Sprintf("object-%05d", count))
			r.Source = noise(count)
			records = append(records, r)
			count++
		}
		put(t, store, part(n), wire.ManifestHeader{}, records...)
	}
	put(t, store, part(13), wire.ManifestHeader{}, marked("object-00007", "object-00006"))
	got := names(t, manifest.Day(t.Context(), store, site, instrument, day))
	if len(got) != count-1 || got[7] != "object-00008" || got[len(got)-1] != fmt.Sprintf("object-%05d", count-1) {
		t.Fatalf("%d objects, want %d", len(got), count-1)
	}
	for range manifest.Day(t.Context(), store, site, instrument, day) {
		break // a reader may stop early
	}
}

// TestForeign: a foreign file among a day's files hides nothing, and is reported.
func TestForeign(t *testing.T) {
	store := testenv.SharedBucket(t)
	put(t, store, part(1), wire.ManifestHeader{}, record("a"))
	foreign := []string{part(1) + ".bak", wire.ManifestPrefix(site, instrument, day) + "old/" + path.Base(part(2))}
	for _, key := range foreign {
		putBytes(t, store, key, []byte("hello"))
	}
	if diff := cmp.Diff([]string{"a"}, names(t, manifest.Day(t.Context(), store, site, instrument, day))); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	files, err := manifest.List(t.Context(), store, site, instrument, day)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(foreign)
	slices.Sort(files.Foreign)
	if diff := cmp.Diff(manifest.Files{InEffect: []string{part(1)}, NextPart: 2, NextVersion: 1, Foreign: foreign}, files, noSizes); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// A file that cannot be decoded hides no other from Readable; and beside a version that cannot
// be decoded, parts have numbers that it cannot have replaced.
func TestReadable(t *testing.T) {
	store := testenv.SharedBucket(t)
	want := func(lines, unreadable []string, next int) {
		t.Helper()
		files, err := manifest.List(t.Context(), store, site, instrument, day)
		if err != nil {
			t.Fatal(err)
		}
		var ids, bad []string
		for r, err := range files.Readable(t.Context(), store, func(key string, err error) {
			if !errors.Is(err, wire.ErrMalformed) {
				t.Errorf("%s: %v", key, err)
			}
			bad = append(bad, key)
		}) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, r.ID)
		}
		if !slices.Equal(ids, lines) || !slices.Equal(bad, unreadable) || files.NextPart != next {
			t.Errorf("lines %v, unreadable %v, next part %d", ids, bad, files.NextPart)
		}
	}
	put(t, store, part(1), wire.ManifestHeader{}, record("a"))
	putBytes(t, store, part(2), []byte("no manifest"))
	put(t, store, part(3), wire.ManifestHeader{}, record("b"))
	want([]string{"a", "b"}, []string{part(2)}, 4)
	putBytes(t, store, version(7), []byte("no manifest"))
	want([]string{"a", "b"}, []string{version(7), part(2)}, 7_000_001)
	put(t, store, part(7_000_001), wire.ManifestHeader{}, record("c"))
	want([]string{"a", "b", "c"}, []string{version(7), part(2)}, 7_000_002)
	if err := firstError(manifest.Day(t.Context(), store, site, instrument, day)); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("the whole day: %v", err)
	}
	putBytes(t, store, version(999_999_999), []byte("no manifest"))
	want([]string{"a", "b", "c"}, []string{version(999_999_999), part(2)}, 998_000_001)
	if _, err := wire.ParseManifestKey(part(998_000_001)); err != nil {
		t.Error(err)
	}
}

func TestDayErrors(t *testing.T) {
	server := testenv.MinIO(t, testenv.MinIOOptions{})
	newer, err := wire.Manifest{Header: wire.ManifestHeader{Site: site, Instrument: instrument, Day: day}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		prepare func(t *testing.T, store objectstore.Store)
		want    error
	}{
		"no manifest": {func(t *testing.T, s objectstore.Store) { putBytes(t, s, part(1), []byte("hello")) }, wire.ErrMalformed},
		"cut off":     {func(t *testing.T, s objectstore.Store) { putBytes(t, s, part(1), newer[:len(newer)-3]) }, wire.ErrMalformed},
		"another day's": {func(t *testing.T, s objectstore.Store) {
			put(t, s, part(1), wire.ManifestHeader{Site: site, Instrument: instrument, Day: "2026-11-22"})
		}, wire.ErrMalformed},
		"newer format": {func(t *testing.T, s objectstore.Store) {
			putBytes(t, s, version(1), compress(t, `{"format":2,"entries":"many"}`+"\n"))
		}, wire.ErrNewerFormat},
	} {
		t.Run(name, func(t *testing.T) {
			store := server.Bucket(t, fmt.Sprintf("bad-%d", time.Now().UnixNano()))
			c.prepare(t, store)
			if err := firstError(manifest.Day(t.Context(), store, site, instrument, day)); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
	t.Run("store away", func(t *testing.T) {
		store := server.Bucket(t, "away")
		put(t, store, part(1), wire.ManifestHeader{}, record("a"))
		server.Kill()
		if err := firstError(manifest.Day(t.Context(), store, site, instrument, day)); !errors.Is(err, objectstore.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := firstError(manifest.Day(ctx, store, site, instrument, day)); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func firstError(records iter.Seq2[wire.Record, error]) error {
	for _, err := range records {
		if err != nil {
			return err
		}
	}
	return nil
}
