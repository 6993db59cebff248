// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// If any bit of a spool is damaged, even in the last record, what is not damaged is restored whole,
// and what is lost is in quarantine. Only a record that was not written to its end is cut off.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir, SegmentSize: 4000})
	const objects = 12
	for i := range objects {
		put(t, s, bytesOf(uint64(i), 400), received.Add(time.Duration(i)))
	}
	closeSpool(t, s)
	paths := files(t, dir)
	if len(paths) < 3 {
		t.Fatal("too few segments for a test:", paths)
	}
	for number, path := range paths {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		last := number == len(paths)-1
		// The last record of the segment begins at the last of its markers.
		tail := bytes.LastIndex(whole, whole[24:32])
		step := func(at int) int {
			switch {
			case last && at >= tail && at < tail+headSize:
				return 1
			case last:
				return 7
			default:
				return 23
			}
		}
		for at := 0; at < len(whole); at += step(at) {
			flipped := bytes.Clone(whole)
			flipped[at] ^= 1 << (at % 8)
			checkDamaged(t, fmt.Sprintf("segment %d, byte %d of %d", number, at, len(whole)), dir, path, flipped, objects, false)
			if last {
				checkDamaged(t, fmt.Sprintf("cut at %d of %d", at, len(whole)), dir, path, whole[:at], objects, true)
			}
		}
	}
}

// checkDamaged opens a copy of a spool in which one file has other bytes: a bit is flipped, or the
// end is missing.
func checkDamaged(t *testing.T, name, dir, path string, damaged []byte, objects int, cut bool) {
	t.Helper()
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(copied, filepath.Base(path)), damaged, 0o640); err != nil {
		t.Fatal(err)
	}
	st, found := takeAll(t, name, copied)
	lost := int64(objects - found)
	switch {
	case st.Objects != 0:
		t.Errorf("%s: %d objects are never given out", name, st.Objects)
	case cut && st.Quarantined != 0:
		t.Errorf("%s: a record that was never written whole is no damage: %+v", name, st)
	case !cut && st.Cut != 0:
		t.Errorf("%s: what is damaged is deleted: %+v", name, st)
	case !cut && (lost > 0) != (st.Quarantined > 0):
		t.Errorf("%s: %d objects are lost, and %d are in quarantine", name, lost, st.Quarantined)
	}
	kept := quarantined(t, copied)
	if int64(len(kept)) != st.Quarantined {
		t.Errorf("%s: %d are in quarantine, which holds %v", name, st.Quarantined, kept)
	}
	// After all of that, the size of the quarantine is still reported, nothing in it is reported as
	// new, and nothing else is left.
	s, err := Open(Config{Dir: copied, Size: 1 << 30, unsafe: true, Quarantined: func(q Quarantine, _ func() error) error { t.Errorf("%s: told twice of %+v", name, q); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if again := s.Stats(); again.Objects != 0 || again.Quarantined != st.Quarantined {
		t.Errorf("%s: opened again: %+v", name, again)
	}
	closeSpool(t, s)
	if left := files(t, copied); len(left) != 0 {
		t.Errorf("%s: left: %v", name, left)
	}
}

// takeAll takes everything out of a spool, puts what is corrupt into quarantine,
// and returns what the spool says at the end, and how many objects were whole.
func takeAll(t *testing.T, name, dir string) (Stats, int) {
	t.Helper()
	s, err := Open(Config{Dir: dir, Size: 1 << 30, SegmentSize: 4000, unsafe: true})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer closeSpool(t, s)
	found := 0
	for {
		e, err := s.next()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if e == nil {
			return s.Stats(), found
		}
		if err := e.Verify(); errors.Is(err, ErrCorrupt) {
			if err := e.Quarantine(err); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			continue
		}
		content(t, e)
		found++
		if err := s.Done(e); err != nil {
			t.Fatal(err)
		}
	}
}

func quarantined(t testing.TB, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, quarantineFolder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// oneObject makes a spool of one segment that holds one object, and returns the
// segment's path.
func oneObject(t *testing.T, dir string, data []byte) string {
	t.Helper()
	s := open(t, Config{Dir: dir})
	put(t, s, data, received)
	closeSpool(t, s)
	paths := files(t, dir)
	if len(paths) != 1 {
		t.Fatal(paths)
	}
	return paths[0]
}

func change(t *testing.T, path string, f func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, f(data), 0o640); err != nil {
		t.Fatal(err)
	}
}

// The last record of all, with one bit of its body flipped, may have its
// receipt: it is given out, found corrupt, and its notice is known.
func TestLastRecordRots(t *testing.T) {
	dir := t.TempDir()
	data := bytesOf(1, 400)
	path := oneObject(t, dir, data)
	change(t, path, func(b []byte) []byte { b[bytes.Index(b, data)+200] ^= 1; return b })
	s := open(t, Config{Dir: dir})
	if st := s.Stats(); st.Objects != 1 || st.Cut != 0 {
		t.Fatalf("%+v", st)
	}
	e := next(t, s)
	if err := e.Verify(); !errors.Is(err, ErrCorrupt) || !e.Unsure() || e.Notice.Key != noticeOf(data, received).Key {
		t.Fatalf("%s is %v", e.Notice.Key, err)
	}
	if err := e.Quarantine(ErrCorrupt); err != nil {
		t.Fatal(err)
	}
	if kept := quarantined(t, dir); len(kept) != 1 || s.Stats().Quarantined != 1 {
		t.Errorf("%v, %+v", kept, s.Stats())
	}
}

// After a power cut the file may have the length of what was never synced, and zeros there, or
// earlier contents of the disk: it is unknown whether that was receipted, so it is kept.
func TestGarbageBehindTheEnd(t *testing.T) {
	for name, garbage := range map[string][]byte{"zeros": make([]byte, 900), "noise": bytesOf(9, 900)} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			data := bytesOf(1, 400)
			path := oneObject(t, dir, data)
			change(t, path, func(b []byte) []byte { return append(b, garbage...) })
			var told []Quarantine
			s := open(t, Config{Dir: dir, Quarantined: func(q Quarantine, keep func() error) error { told = append(told, q); return keep() }})
			kept := quarantined(t, dir)
			if st := s.Stats(); st.Quarantined != 1 || st.Cut != 0 || len(told) != 1 || told[0].Size != 900 || len(kept) != 1 {
				t.Fatalf("%+v, told of %v, kept %v", st, told, kept)
			}
			if b, err := os.ReadFile(kept[0]); err != nil || !bytes.Equal(b, garbage) {
				t.Errorf("%d bytes are kept, %v", len(b), err)
			}
			content(t, next(t, s))
		})
	}
}

// Two corrupt records at the same place of segments with the same number are two, each is reported,
// and the first one's bytes stay.
func TestQuarantineTwice(t *testing.T) {
	for name, damage := range map[string]func(b, data []byte) []byte{
		"body":    func(b, data []byte) []byte { b[bytes.Index(b, data)+200] ^= 1; return b },
		"head":    func(b, _ []byte) []byte { b[segmentHead+20] ^= 1; return b },
		"segment": func(b, _ []byte) []byte { b[5] ^= 1; return b },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var before [][]byte
			for incarnation := range 2 {
				data := bytesOf(uint64(incarnation), 400)
				path := oneObject(t, dir, data)
				if n, _ := numberOf(path); n != 1 {
					t.Fatalf("an empty spool begins with segment %d: the test tests nothing", n)
				}
				change(t, path, func(b []byte) []byte { return damage(b, data) })
				if st, found := takeAll(t, name, dir); found != 0 || st.Quarantined != int64(incarnation+1) {
					t.Errorf("incarnation %d: %d found, %+v", incarnation, found, st)
				}
				kept := quarantined(t, dir)
				if len(kept) != incarnation+1 {
					t.Fatalf("incarnation %d: quarantine holds %v", incarnation, kept)
				}
				for _, was := range before {
					if !holds(t, kept, was) {
						t.Errorf("incarnation %d: what an earlier one kept was overwritten", incarnation)
					}
				}
				before = nil
				for _, path := range kept {
					b, err := os.ReadFile(path)
					if err != nil {
						t.Fatal(err)
					}
					before = append(before, b)
				}
			}
		})
	}
}

// On a full volume quarantine takes no copy of corrupt bytes: the segment that holds them stays,
// and the next incarnation makes the copy. It is reported once, when quarantine has it.
func TestQuarantineOnAFullVolume(t *testing.T) {
	volume := smallVolume(t)
	dir := filepath.Join(volume, "spool")
	data := bytesOf(1, 100_000)
	path := oneObject(t, dir, data)
	change(t, path, func(b []byte) []byte { b[segmentHead+20] ^= 1; return b })
	was, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(volume, "filler")
	if err := os.WriteFile(filler, make([]byte, 64<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the volume is not full: %v", err)
	}
	told := 0
	cfg := Config{Dir: dir, Quarantined: func(_ Quarantine, keep func() error) error { told++; return keep() }}
	for range 2 {
		closeSpool(t, open(t, cfg))
	}
	if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, was) {
		t.Fatalf("of the only copy of corrupt bytes %d are left, %v", len(b), err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		closeSpool(t, open(t, cfg))
	}
	if told != 1 {
		t.Errorf("it was told of %d times", told)
	}
	kept := quarantined(t, dir)
	if len(kept) != 1 || len(files(t, dir)) != 0 {
		t.Fatalf("with space again, quarantine holds %v, and the spool %v", kept, files(t, dir))
	}
	if b, err := os.ReadFile(kept[0]); err != nil || !bytes.Contains(was, b) || !bytes.Contains(b, data) {
		t.Errorf("quarantine holds %d bytes, %v", len(b), err)
	}
}

func holds(t *testing.T, paths []string, want []byte) bool {
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(b, want) {
			return true
		}
	}
	return false
}

// An entry of the folder that has a segment's name and is no file does not keep a gateway
// from starting, nor from writing.
func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	data := bytesOf(1, 400)
	oneObject(t, dir, data)
	for _, path := range []string{segmentPath(dir, 2), segmentPath(dir, 3), filepath.Join(dir, "0000000000004.log"), filepath.Join(dir, "99999999999999999999.log")} {
		if err := os.MkdirAll(filepath.Join(path, "something"), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/dev/null", segmentPath(dir, 7)); err != nil {
		t.Fatal(err)
	}
	s := open(t, Config{Dir: dir})
	if st := s.Stats(); st.Quarantined != 3 || st.Objects != 1 {
		t.Errorf("%+v", st)
	}
	put(t, s, bytesOf(2, 400), received)
	for i := range 2 {
		e := next(t, s)
		if !bytes.Equal(content(t, e), bytesOf(uint64(i+1), 400)) {
			t.Errorf("object %d has other bytes", i)
		}
		if err := s.Done(e); err != nil {
			t.Fatal(err)
		}
	}
	kept := quarantined(t, dir)
	if len(kept) != 3 || !strings.Contains(kept[0], "000000000002.log-") {
		t.Errorf("quarantine holds %v", kept)
	}
}

// Bytes of one record that are put into quarantine twice are one file: a quarantine that a kill
// kept from being noted is not reported again.
func TestQuarantineAgain(t *testing.T) {
	dir := t.TempDir()
	path := oneObject(t, dir, bytesOf(1, 400))
	change(t, path, func(b []byte) []byte { return append(b, 1, 2, 3) })
	for incarnation := range 3 {
		told := 0
		s := open(t, Config{Dir: dir, Quarantined: func(_ Quarantine, keep func() error) error { told++; return keep() }})
		if st := s.Stats(); st.Quarantined != 1 || (told == 1) != (incarnation == 0) {
			t.Errorf("incarnation %d: told %d times, %+v", incarnation, told, st)
		}
		content(t, next(t, s)) // which stays
		closeSpool(t, s)
	}
}
