// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var golden = flag.Bool("golden", false, "write golden files anew")

func sealed(text string) string { return string(seal([]byte(text))) }

func sampleRecords() []Record {
	key := KeyOf("/data/frame.jpg", 200_000, noon, 0)
	return []Record{
		{Type: TypeTaken, At: noon, Key: hex.EncodeToString(key[:]), Path: "/data/frame.jpg"},
		{Type: TypeSpent, At: noon, Day: "2026-11-21", Bytes: 1_234_567},
		{Type: TypeAside, At: noon, Entry: "refused/1763726400123-00000007-000000000000002a-frame.jpg", Reason: "ObjectTooLarge"},
		{Type: TypeVersion, At: noon, Key: hex.EncodeToString(key[:]), Path: "/data/frame.jpg", Version: &Version{Name: "frame-20261121T120000.123Z.jpg", Last: noon, Written: noon, Check: 42}},
	}
}

// Records of released versions are read for ever.
func TestGoldenJournal(t *testing.T) {
	const file = "testdata/journal-1.golden"
	var text []byte
	for _, r := range sampleRecords() {
		line, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, line...)
	}
	if *golden {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(text)); diff != "" {
		t.Error(diff)
	}
	var got []Record
	bad, err := readRecords(bytes.NewReader(want), func(r Record, _ []byte) error { got = append(got, r); return nil })
	if bad != 0 || err != nil {
		t.Errorf("%d bad ones, %v", bad, err)
	}
	records := sampleRecords()
	for i := range records {
		records[i].Format = 1
	}
	if diff := cmp.Diff(records, got); diff != "" {
		t.Error(diff)
	}
}

// A damaged line costs itself only; a torn last one is what a kill leaves; a
// newer format is not guessed at.
func TestDamagedJournal(t *testing.T) {
	lines := []string{}
	for _, r := range sampleRecords() {
		line, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line))
	}
	newer := strings.Replace(lines[0][9:], `"format":1`, `"format":2`, 1)
	for name, c := range map[string]struct {
		text      string
		good, bad int
		newer     bool
	}{
		"torn":       {text: lines[0] + lines[1][:20], good: 1},
		"flipped":    {text: lines[0] + strings.Replace(lines[1], "spent", "spemt", 1) + lines[2], good: 2, bad: 1},
		"empty line": {text: lines[0] + "\n" + lines[2], good: 2, bad: 1},
		"too long":   {text: lines[0] + strings.Repeat("x", 3*maxRecord) + "\n" + lines[2], good: 2, bad: 1},
		"zeros":      {text: lines[0] + strings.Repeat("\x00", 4096) + "\n" + lines[2], good: 2, bad: 1},
		"newer":      {text: lines[0] + sealed(strings.TrimSuffix(newer, "\n")), good: 1, newer: true},
	} {
		good := 0
		bad, err := readRecords(strings.NewReader(c.text), func(Record, []byte) error { good++; return nil })
		if good != c.good || bad != c.bad || errors.Is(err, ErrNewerFormat) != c.newer || (err != nil) != c.newer {
			t.Errorf("%s: %d good, %d bad, %v", name, good, bad, err)
		}
	}

	// A queue continues after a torn line.
	dir := t.TempDir()
	closeQueue(t, open(t, dir))
	if err := os.WriteFile(dir+"/"+fileJournal, []byte(lines[1]+lines[0][:30]), 0o640); err != nil {
		t.Fatal(err)
	}
	q := open(t, dir)
	if err := q.NoteSpent("2026-11-22", 5); err != nil {
		t.Fatal(err)
	}
	closeQueue(t, q)
	q = open(t, dir)
	if day, n := q.Spent(); day != "2026-11-22" || n != 5 || q.Report().BadRecords != 0 {
		t.Errorf("got %s, %d, %+v", day, n, q.Report())
	}
}

func FuzzReadRecords(f *testing.F) {
	for _, r := range sampleRecords() {
		line, err := r.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line)
		f.Add(append(line, line[:len(line)-2]...))
	}
	f.Add([]byte("\n"))
	f.Add([]byte(sealed(`{"format":1,"type":"taken","key":"zz"}`)))
	f.Add([]byte(sealed(`{"format":9}`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, text := range [][]byte{data, []byte(sealed(string(data)))} {
			lines := bytes.Count(text, []byte{'\n'})
			good := 0
			bad, err := readRecords(bytes.NewReader(text), func(r Record, _ []byte) error {
				good++
				line, err := r.Encode()
				if err != nil {
					return nil // what fits a line may not, once more is escaped
				}
				again, err := DecodeRecord(bytes.TrimSuffix(line, []byte{'\n'}))
				if err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				if diff := cmp.Diff(r, again); diff != "" {
					t.Fatal(diff)
				}
				return nil
			})
			if err == nil && good+bad != lines {
				t.Fatalf("%d good, %d bad, of %d lines", good, bad, lines)
			}
		}
	})
}

func FuzzParseFile(f *testing.F) {
	f.Add("1763726400123-00000007-000000000000002a-frame.jpg")
	f.Add(Entry{Name: cleanName("a/ü\xff")}.File())
	f.Fuzz(func(t *testing.T, file string) {
		if e, ok := ParseFile(file); ok && e.File() != file {
			t.Fatalf("%q is read as %+v, which is %q", file, e, e.File())
		}
		if clean := cleanName(file); cleanName(clean) != clean || len(clean) > MaxName+1 {
			t.Fatalf("%q is made %q, and that %q", file, clean, cleanName(clean))
		}
	})
}
