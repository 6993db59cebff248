// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/manifest"
)

// found is what a scan leaves that came upon these lines of an instrument.
func found(t *testing.T, cfg Config, instrument string, lines ...line) *Found {
	t.Helper()
	cfg.ScratchDir = t.TempDir()
	f, err := newFound(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(cfg.ScratchDir); err != nil || len(left) > 0 {
			t.Errorf("left in the scratch folder: %v, %v", left, err)
		}
	})
	for _, l := range lines {
		if err := f.add(instrument, l, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.flush(); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestFound: what was found is by instrument and day of receipt, in the order in which it
// came, whatever is written when; of what is not wanted only stays what it supersedes.
func TestFound(t *testing.T) {
	today, tomorrow := record(1, "a", "a", 0), record(24*60, "b", "packs/1", 512)
	long := record(2, "c", "c", 0)
	long.Reason = strings.Repeat("long ", 64<<10) // longer than what is read at once
	f := found(t, Config{}, "mag-1", at(rankObject, 1, today), at(rankObject, 2, long))
	newer := record(3, "a~2", "a~2", 0)
	newer.Supersedes = "a"
	self := record(4, "d", "d", 0)
	self.Supersedes = "d"
	for _, add := range []error{
		f.add("mag-1", at(rankPack, 3, tomorrow), true), f.add("mag-1", at(rankPack, 4, today), true), f.add("allsky-1", at(rankObject, 5, self), true),
		f.add("mag-1", at(rankObject, 6, newer), false), f.flush(),
	} {
		if add != nil {
			t.Fatal(add)
		}
	}
	f.day("sonde-1", day) // only changes are stored of it
	f.day("mag-1", day)
	lists := []List{{"allsky-1", day}, {"mag-1", day}, {"mag-1", "2026-11-22"}, {"sonde-1", day}}
	if diff := cmp.Diff(lists, f.Lists()); diff != "" {
		t.Errorf("lists (-want +got):\n%s", diff)
	}
	for of, want := range map[List][]line{
		lists[0]: {at(rankObject, 5, self)},
		lists[1]: {at(rankObject, 1, today), at(rankObject, 2, long), at(rankPack, 4, today)},
		lists[2]: {at(rankPack, 3, tomorrow)},
	} {
		file, err := f.open(of)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		var got []line
		var offsets []int64
		err = eachLine(file, func(offset int64, l line) error {
			got, offsets = append(got, l), append(offsets, offset)
			return nil
		})
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v: %v (-want +got):\n%s", of, err, diff)
		}
		info, err := file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		for i, end := range append(offsets[1:], info.Size()) {
			l, err := lineAt(file, offsets[i], end-offsets[i])
			if diff := cmp.Diff(want[i], l); diff != "" || err != nil {
				t.Errorf("line %d of %v: %v (-want +got):\n%s", i, of, err, diff)
			}
		}
	}
	if file, err := f.open(lists[3]); file != nil || err != nil {
		t.Errorf("a list that has changes alone: %v, %v", file, err)
	}
	want := map[string]map[manifest.IDHash]bool{"mag-1": {manifest.HashID("a"): true}}
	if diff := cmp.Diff(want, f.superseded); diff != "" {
		t.Errorf("superseded (-want +got):\n%s", diff)
	}
}

// TestDamagedScratch: a scratch file that cannot be read is no end of what was found.
func TestDamagedScratch(t *testing.T) {
	for name, text := range map[string]string{"no line": "hello\n", "cut off": `{"rank":0,"storedAt":1,"id":"a"`} {
		err := eachLine(strings.NewReader(text), func(int64, line) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "scratch: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := lineAt(strings.NewReader(`{"rank":0}`), 3, 20); err == nil {
		t.Error("a line behind the end is read")
	}
}
