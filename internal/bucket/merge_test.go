// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const (
	site = "thule"
	day  = wire.Day("2026-11-21")
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// record is an object of a minute of the day, at a place and, in a pack, an offset.
func record(minute int, id, key string, offset int64) wire.Record {
	r := wire.Record{ID: id, Key: key, Offset: offset, Size: 5, Digest: sha256.Sum256([]byte(id)), State: wire.StateCurrent,
		ReceivedAt: noon.Add(time.Duration(minute) * time.Minute), TimeSource: wire.TimeSourceReceived}
	if offset > 0 {
		r.Length = 5
	}
	return r
}

// in is a record in a state.
func in(state wire.State, r wire.Record, reason string) wire.Record {
	r.State, r.Reason = state, reason
	return r
}

// at is a line about a record that was stored so many seconds after noon.
func at(rank, seconds int, r wire.Record) line {
	return line{Rank: rank, StoredAt: noon.Add(time.Duration(seconds) * time.Second).UnixNano(), Record: r}
}

// say spells a line of the merged day.
func say(l Line) string {
	text := fmt.Sprintf("%s %s %s %d", l.ID, l.State, l.Key, l.Offset)
	for flag, set := range map[string]bool{" missing": l.Missing, " young": l.Young} {
		if set {
			text += flag
		}
	}
	if l.Reason != "" {
		text += " " + l.Reason
	}
	return text
}

// TestMerge: of the places of an object the one holds that manifests name last, and over
// what the object says goes what changes say.
func TestMerge(t *testing.T) {
	store := testenv.SharedBucket(t)
	if err := store.Put(t.Context(), "old/tree/b", strings.NewReader("hello"), 5, objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	own, packed, compacted := record(1, "a", "a", 0), record(1, "a", "packs/1", 512), record(1, "a", "packs/c-1", 1024)
	second := record(2, "b", "b", 0)
	corrected := record(3, "a~2", "a~2", 0)
	corrected.Supersedes = "a"
	for name, c := range map[string]struct {
		lines   []line
		changes []wire.Record
		before  time.Time
		want    []string
	}{
		"nothing": {},
		"in the order of receipt": {lines: []line{at(rankObject, 9, second), at(rankObject, 8, own)},
			want: []string{"a Current a 0", "b Current b 0"}},
		"a compacted pack before a gateway's and the object": {lines: []line{at(rankCompacted, 1, compacted), at(rankObject, 3, own), at(rankPack, 2, packed)},
			want: []string{"a Current packs/c-1 1024"}},
		"of two packs the later one": {lines: []line{at(rankPack, 2, packed), at(rankPack, 1, record(1, "a", "packs/0", 512))},
			want: []string{"a Current packs/1 512"}},
		"superseded by a newer version": {lines: []line{at(rankObject, 1, own), at(rankObject, 2, corrected)},
			want: []string{"a Superseded a 0", "a~2 Current a~2 0"}},
		"retracted, and where its bytes are now": {lines: []line{at(rankCompacted, 1, compacted)}, changes: []wire.Record{in(wire.StateRetracted, own, "dark")},
			want: []string{"a Retracted packs/c-1 1024 dark"}},
		"purged, and its bytes there": {lines: []line{at(rankObject, 1, own)}, changes: []wire.Record{in(wire.StatePurged, own, "private")},
			want: []string{"a Purged a 0 private"}},
		"purged, and its bytes gone": {changes: []wire.Record{in(wire.StatePurged, own, "private")},
			want: []string{"a Purged a 0 private"}},
		"retracted, and its bytes gone": {lines: []line{at(rankObject, 1, second)}, changes: []wire.Record{in(wire.StateRetracted, own, "dark")},
			want: []string{"b Current b 0", "a Retracted a 0 missing dark"}},
		"imported in place": {changes: []wire.Record{record(2, "old/tree/b", "old/tree/b", 0), record(1, "old/tree/c", "old/tree/c", 0)},
			want: []string{"old/tree/c Current old/tree/c 0 missing", "old/tree/b Current old/tree/b 0"}},
		"young: stored since, everywhere, and no change tells of it": {before: noon.Add(5 * time.Second),
			lines: []line{at(rankObject, 5, own), at(rankPack, 6, packed), at(rankObject, 4, second), at(rankPack, 7, record(2, "b", "packs/1", 0)),
				at(rankObject, 8, corrected)},
			changes: []wire.Record{in(wire.StateRetracted, corrected, "dark")},
			want:    []string{"a Superseded packs/1 512 young", "b Current packs/1 0", "a~2 Retracted a~2 0 dark"}},
	} {
		t.Run(name, func(t *testing.T) {
			of := List{fmt.Sprintf("i-%x", sha256.Sum256([]byte(name)))[:12], day}
			header := wire.ManifestHeader{Site: site, Instrument: of.Instrument, Day: day}
			if err := manifest.PutChanges(t.Context(), store, header, 3, c.changes); err != nil {
				t.Fatal(err)
			}
			f := found(t, Config{Store: store, Site: site}, of.Instrument, c.lines...)
			m, err := f.Merge(t.Context(), of, c.before)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			var got []string
			for l, err := range m.All() {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, say(l))
				l.Young = false // of one object that is asked for
				if one, found, err := m.Get(l.ID); err != nil || !found || say(one) != say(l) {
					t.Errorf("asked for %s: %q, %t, %v, want %q", l.ID, say(one), found, err, say(l))
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("merged (-want +got):\n%s", diff)
			}
			for _, l := range c.lines {
				if !m.Holds(l.Record) {
					t.Errorf("%s is not held at %s", l.ID, l.Key)
				}
			}
			if m.Holds(record(1, "a", "elsewhere", 0)) {
				t.Error("a is held where it never was")
			}
			if want := min(3, 3*len(c.changes)); m.LastPart != want {
				t.Errorf("the last part is %d, want %d", m.LastPart, want)
			}
		})
	}
}
