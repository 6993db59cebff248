// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestPublished(t *testing.T) {
	raw := sampleRaw()
	packed := samplePacked()
	named := packed
	named.Name = "night/frame 7.jpg"
	spooled := packed
	spooled.ID = SpooledID(sampleNotice(packed, "allsky-1"))
	moved := raw
	moved.Key, moved.Offset, moved.Length = packed.Key, 512, 5
	replaced := sampleImported()
	replaced.ID += "?modified=" + FormatTime(replaced.ReceivedAt)
	nameless := sampleImported()
	nameless.Name = ""
	short := ShortID(sampleTime, raw.Digest)
	for what, c := range map[string]struct {
		record Record
		want   string
	}{
		"a path":                        {samplePublished(), "2026/11/21/rank_235958~2.pgm"},
		"no name":                       {raw, "r/2026/11/21/" + short},
		"no name, packed later":         {moved, "r/2026/11/21/" + short},
		"a member":                      {packed, "r/2026/11/21/" + short},
		"a member that moved":           {sampleRepacked(), "r/2026/11/21/" + short},
		"a member from a spool":         {spooled, "r/2026/11/21/" + short + "-gateway-0-01k9zqv7r3-654321"},
		"a member with a name":          {named, "n/night/frame 7.jpg"},
		"the first version of a name":   {sampleSuperseded(), "n/2026/frame 7.jpg"},
		"the second version of a name":  {sampleNamed(), "n/2026/frame 7.jpg"},
		"a segment":                     {sampleSegment(), "s/raw/2026/11/21/" + StreamEpoch(sampleTime) + "-41-97.pcapng"},
		"imported in place":             {sampleImported(), "old/allsky/2015/03/17/rank_0630.fits"},
		"imported in place, once more":  {replaced, "old/allsky/2015/03/17/rank_0630.fits"},
		"imported by those of long ago": {nameless, "old/allsky/2015/03/17/rank_0630.fits"},
	} {
		if got := c.record.Published(); got != c.want {
			t.Errorf("%s is published under %q, want %q", what, got, c.want)
		}
	}
}

// Numbers of parts are a set, whatever the order in which they come.
func TestPartNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		numbers := rapid.SliceOf(rapid.IntRange(1, 40)).Draw(t, "numbers")
		var p PartNumbers
		for _, n := range numbers {
			p = p.Add(n)
		}
		want := slices.Compact(slices.Sorted(slices.Values(numbers)))
		var got []int
		for n := range 42 {
			if p.Has(n) {
				got = append(got, n)
			}
		}
		if !slices.Equal(got, want) || p.Count() != len(want) {
			t.Fatalf("%v holds %v, want %v", p, got, want)
		}
		for i := 1; i < len(p); i++ {
			if p[i][0] <= p[i-1][1]+1 {
				t.Fatalf("%v: ranges touch", p)
			}
		}
		if err := checkDays([]RootDay{{Day: "2026-11-21", Parts: p}}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRootDayKeys(t *testing.T) {
	d := RootDay{Day: "2026-11-21", Version: 2, Parts: PartNumbers{{3, 4}, {9, 9}}}
	want := []string{ManifestVersionKey("s", "i", d.Day, 2), ManifestPartKey("s", "i", d.Day, 3), ManifestPartKey("s", "i", d.Day, 4), ManifestPartKey("s", "i", d.Day, 9)}
	if diff := cmp.Diff(want, d.Keys("s", "i")); diff != "" {
		t.Error(diff)
	}
}

func TestRootKeys(t *testing.T) {
	site, instrument, number, err := ParseRootKey(RootKey("thule", "allsky-1", 17))
	if site != "thule" || instrument != "allsky-1" || number != 17 || err != nil {
		t.Error(site, instrument, number, err)
	}
	for _, key := range []string{"", RootKey("thule", "allsky-1", 0), RootKey("thule", "allsky-1", -1), ManifestPartKey("thule", "allsky-1", "2026-11-21", 1),
		"manifest/thule/allsky-1/r-01.jsonl.zst", RootKey("thule", "a/b", 1), RootKey("thule", "allsky-1", 1) + "x"} {
		if _, _, _, err := ParseRootKey(key); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", key, err)
		}
	}
	if _, err := ParseManifestKey(RootKey("thule", "allsky-1", 1)); !errors.Is(err, ErrMalformed) {
		t.Errorf("a root passes for a manifest: %v", err)
	}
}

// An index that cannot be is refused, in an entry as in a root.
func TestIndexMustBePossible(t *testing.T) {
	for what, days := range map[string][]RootDay{
		"no day":             {{}},
		"no date":            {{Day: "2026-02-30"}},
		"descending":         {{Day: "2026-11-22"}, {Day: "2026-11-21"}},
		"a day twice":        {{Day: "2026-11-22"}, {Day: "2026-11-22"}},
		"negative entries":   {{Day: "2026-11-22", Entries: -1}},
		"negative bytes":     {{Day: "2026-11-22", Bytes: -1}},
		"part 0":             {{Day: "2026-11-22", Parts: PartNumbers{{0, 1}}}},
		"a range backwards":  {{Day: "2026-11-22", Parts: PartNumbers{{3, 2}}}},
		"ranges overlap":     {{Day: "2026-11-22", Parts: PartNumbers{{1, 3}, {3, 4}}}},
		"a billion of parts": {{Day: "2026-11-22", Parts: PartNumbers{{1, 1_000_000_000}}}},
	} {
		entry, err := Encode(IndexEntry{Open: days})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode[IndexEntry](entry); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: entry: %v", what, err)
		}
		root, err := Root{Days: days}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeRoot(bytes.NewReader(root)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: root: %v", what, err)
		}
	}
	if _, err := Decode[IndexEntry]([]byte(`{"format":1,"root":-1}`)); !errors.Is(err, ErrMalformed) {
		t.Errorf("root -1: %v", err)
	}
	line := func(v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(data) + "\n"
	}
	day := line(RootDay{Day: "2026-11-21"})
	for what, text := range map[string]string{
		"one day too few":  line(RootHeader{Format: 1, Days: 2}) + day,
		"one day too many": line(RootHeader{Format: 1}) + day,
		"days negative":    line(RootHeader{Format: 1, Days: -1}),
		"no day":           line(RootHeader{Format: 1, Days: 1}) + "[]\n",
	} {
		if _, err := DecodeRoot(bytes.NewReader(compress(t, text))); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The header counts the lines that replace others, and must be right about them.
func TestManifestCountsChanges(t *testing.T) {
	m := sampleChanges()
	m.Header.Changes = 0 // computed
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeManifest(bytes.NewReader(data))
	if err != nil || got.Header.Changes != 2 {
		t.Errorf("%d changes, %v", got.Header.Changes, err)
	}
	header := `{"format":1,"site":"s","instrument":"i","day":"2026-11-21","entries":1,"writer":"w","incarnation":"x"}` + "\n"
	record, err := json.Marshal(sampleRetracted())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeManifest(bytes.NewReader(compress(t, header+string(record)+"\n"))); !errors.Is(err, ErrMalformed) {
		t.Errorf("a change that the header does not count: %v", err)
	}
}

func FuzzDecodeIndexEntry(f *testing.F) { fuzzRecord[IndexEntry](f, "index.json") }

// FuzzRootLines fuzzes what is inside a root's compression.
func FuzzRootLines(f *testing.F) {
	for _, root := range []Root{sampleRoot(), {Header: RootHeader{Format: 1}}} {
		var lines bytes.Buffer
		enc := json.NewEncoder(&lines)
		_ = enc.Encode(root.Header)
		for _, d := range root.Days {
			_ = enc.Encode(d)
		}
		f.Add(lines.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		root, err := readRoot(bytes.NewReader(data))
		if err != nil {
			explained(t, err)
			return
		}
		encoded, err := root.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeRoot(bytes.NewReader(encoded))
		if diff := cmp.Diff(root.Days, again.Days, comparing); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
	})
}

func FuzzDecodeRoot(f *testing.F) {
	seed(f, "manifest-root.jsonl.zst")
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := DecodeRoot(bytes.NewReader(data)); err != nil {
			explained(t, err)
		}
	})
}
