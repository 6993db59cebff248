// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func open(t *testing.T, dir string) *Queue {
	t.Helper()
	q, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

func closeQueue(t *testing.T, q *Queue) {
	t.Helper()
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, q *Queue, e Entry) string {
	t.Helper()
	f, err := q.Open(e)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	if !e.Matches(sha256.Sum256(data)) || e.Size != int64(len(data)) {
		t.Errorf("%s: %d bytes, want %d, or others", e.File(), len(data), e.Size)
	}
	return string(data)
}

func source(t *testing.T, path, text string, at time.Time) Source {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
	return Source{Name: filepath.Base(path), Path: path, Observed: at, Key: KeyOf(path, int64(len(text)), at, 0)}
}

func text(s string) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(s)), nil }
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 123_000_000, time.UTC)

// An object that was added is there after the queue is opened again, in the order of time, until it is done.
func TestOwedUntilDone(t *testing.T) {
	dir, watched := filepath.Join(t.TempDir(), "queue"), t.TempDir()
	q := open(t, dir)
	late := source(t, filepath.Join(watched, "b.jpg"), "late", noon.Add(time.Hour))
	early := source(t, filepath.Join(watched, "a.jpg"), "early", noon)
	moved := source(t, filepath.Join(watched, "c: d.jpg"), "moved", noon.Add(time.Minute))
	moved.Move = true
	added, err := q.Add(late, early, moved, Source{Name: "-:1", Open: text("line"), Observed: noon.Add(2 * time.Hour)})
	if err != nil || len(added) != 4 {
		t.Fatalf("added %v, %v", added, err)
	}
	if !q.Taken(late.Key) || !q.Taken(early.Key) || q.Taken(moved.Key) || q.Taken(KeyOf(late.Path, 5, late.Observed, 0)) {
		t.Error("the journal knows other files than were taken")
	}
	if _, err := os.Stat(moved.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that was to be moved is still there: %v", err)
	}
	closeQueue(t, q)

	q = open(t, dir)
	var got []string
	for _, e := range q.Waiting() {
		got = append(got, e.Name+" "+content(t, q, e))
	}
	if want := []string{"a.jpg early", "c_ d.jpg moved", "b.jpg late", "-_1 line"}; !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	if r := q.Report(); r.Owed != 4 || r.OwedBytes != 18 || r.BadRecords != 0 || r.Adopted != 0 {
		t.Errorf("report %+v", r)
	}
	if !q.Taken(late.Key) || !q.Taken(early.Key) {
		t.Error("forgot what was taken")
	}
	for _, e := range added[:3] {
		if err := q.Done(e); err != nil {
			t.Fatal(err)
		}
	}
	closeQueue(t, q)
	q = open(t, dir)
	if w := q.Waiting(); len(w) != 1 || w[0] != added[3] {
		t.Errorf("owed %+v, want %+v", w, added[3])
	}
	again, err := q.Add(early)
	if err != nil || len(again) != 1 || again[0].Number <= added[3].Number {
		t.Errorf("numbers do not grow: %+v, %v", again, err)
	}
}

func TestOneProcess(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir)
	if _, err := Open(Config{Dir: dir}); !errors.Is(err, ErrInUse) {
		t.Errorf("opened twice: %v", err)
	}
	closeQueue(t, q)
	open(t, dir)
}

func TestForeignFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.tex"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: dir}); !errors.Is(err, ErrNoQueue) {
		t.Errorf("got %v", err)
	}
	dir = t.TempDir()
	closeQueue(t, open(t, dir))
	if err := os.WriteFile(filepath.Join(dir, fileFormat), []byte("substorm queue 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: dir}); !errors.Is(err, ErrNewerFormat) {
		t.Errorf("got %v", err)
	}
}

// Empty files, files that go and files that change are left for later.
func TestNotYetWhole(t *testing.T) {
	q, watched := open(t, t.TempDir()), t.TempDir()
	empty := source(t, filepath.Join(watched, "empty"), "", noon)
	gone := source(t, filepath.Join(watched, "gone"), "gone", noon)
	if err := os.Remove(gone.Path); err != nil {
		t.Fatal(err)
	}
	changed := source(t, filepath.Join(watched, "changed"), "first", noon)
	changed.Observed = noon.Add(-time.Second)
	for _, move := range []bool{false, true} {
		empty.Move, gone.Move, changed.Move = move, move, move
		if added, err := q.Add(empty, gone, changed); err != nil || len(added) > 0 {
			t.Errorf("move %v: added %v, %v", move, added, err)
		}
	}
	if left, _ := os.ReadDir(q.path(folderIncoming)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A moved file from another file system is copied.
func TestMoveFromAnotherDisk(t *testing.T) {
	other, err := os.MkdirTemp("/dev/shm", "substorm-queue-*")
	if err != nil {
		t.Skip("no second file system:", err)
	}
	t.Cleanup(func() { os.RemoveAll(other) })
	q := open(t, t.TempDir())
	s := source(t, filepath.Join(other, "a"), "from elsewhere", noon)
	s.Move = true
	added, err := q.Add(s)
	if err != nil || len(added) != 1 || content(t, q, added[0]) != "from elsewhere" {
		t.Fatalf("added %v, %v", added, err)
	}
	if _, err := os.Stat(s.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}

// A file that is put into objects by hand is owed. An entry that is set aside is not owed until it
// is put back.
func TestByHand(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir)
	added, err := q.Add(Source{Name: "huge", Open: text("huge"), Observed: noon})
	if err != nil {
		t.Fatal(err)
	}
	if err := q.SetAside(added[0], Refused, "ObjectTooLarge"); err != nil {
		t.Fatal(err)
	}
	closeQueue(t, q)
	source(t, filepath.Join(dir, folderObjects, "found on a stick.dat"), "found", noon)
	q = open(t, dir)
	w := q.Waiting()
	if len(w) != 1 || content(t, q, w[0]) != "found" || w[0].Name != "found on a stick.dat" || q.Report().Adopted != 1 || w[0].Number <= added[0].Number {
		t.Fatalf("owed %+v, %+v", w, q.Report())
	}
	closeQueue(t, q)
	journal, err := os.ReadFile(filepath.Join(dir, fileJournal))
	if err != nil || !strings.Contains(string(journal), `"entry":"refused/`+added[0].File()+`","reason":"ObjectTooLarge"`) {
		t.Errorf("journal %s, %v", journal, err)
	}
	if err := os.Rename(filepath.Join(dir, Refused, added[0].File()), filepath.Join(dir, folderObjects, added[0].File())); err != nil {
		t.Fatal(err)
	}
	if w := open(t, dir).Waiting(); len(w) != 2 {
		t.Errorf("owed %+v", w)
	}
}

func TestSpent(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir)
	if day, n := q.Spent(); day != "" || n != 0 {
		t.Errorf("at first %s, %d", day, n)
	}
	for n := range int64(3) {
		if err := q.NoteSpent("2026-11-21", n*100); err != nil {
			t.Fatal(err)
		}
	}
	closeQueue(t, q)
	if day, n := open(t, dir).Spent(); day != "2026-11-21" || n != 200 {
		t.Errorf("got %s, %d", day, n)
	}
}

// The journal is made small again, and forgets no file that is there, nor one
// that may come back.
func TestCompact(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir)
	present := map[Key]struct{}{}
	var old, recent, there Key
	now := time.Now()
	for i := range 1200 {
		key := KeyOf(fmt.Sprint("file", i), 1, noon, 0)
		at := now.Add(-8 * 24 * time.Hour)
		switch i {
		case 0:
			old = key
		case 1:
			recent, at = key, now.Add(-6*24*time.Hour)
		case 2:
			there = key
			present[key] = struct{}{}
		}
		if err := q.journal.append(Record{Type: TypeTaken, At: at, Key: fmt.Sprintf("%x", key[:])}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range int64(10) {
		if err := q.NoteSpent("2026-11-21", n); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // in memory, and as read back from the file
		if err := q.Compact(present, now); err != nil {
			t.Fatal(err)
		}
		if q.Taken(old) || !q.Taken(recent) || !q.Taken(there) || len(q.journal.taken) != 2 {
			t.Errorf("old %v, recent %v, there %v, %d in all", q.Taken(old), q.Taken(recent), q.Taken(there), len(q.journal.taken))
		}
		if _, n := q.Spent(); n != 9 || q.journal.records != 3 {
			t.Errorf("spent %d, %d records", n, q.journal.records)
		}
		closeQueue(t, q)
		q = open(t, dir)
	}
}

func TestEntryNames(t *testing.T) {
	for _, name := range []string{"frame.jpg", "", ".", "..", "a/b\\c", "ü", strings.Repeat("ü", 200), "\x00\xff", "x. ", "con", "a\nb"} {
		e := Entry{Millis: clampMillis(noon), Number: 7, Check: 42, Name: cleanName(name)}
		got, ok := ParseFile(e.File())
		if !ok || got != e || len(e.File()) > 255 {
			t.Errorf("%q: %q is read as %+v, %v", name, e.File(), got, ok)
		}
		if err := os.WriteFile(filepath.Join(t.TempDir(), e.File()), nil, 0o600); err != nil {
			t.Error(err)
		}
	}
	for _, file := range []string{"", "frame.jpg", "1763726400123-00000007-000000000000002a-", "1763726400123-00000007-000000000000002a-a/b", "1763726400123-00000007-000000000000002A-a"} {
		if e, ok := ParseFile(file); ok {
			t.Errorf("%q is read as %+v", file, e)
		}
	}
	if a, b := clampMillis(time.Time{}), clampMillis(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)); a != 0 || b != maxMillis {
		t.Errorf("%d, %d", a, b)
	}
}

// If the folder of entries cannot be synced, nothing is taken: a file that was to be
// copied stays where it is, and is taken once that works. A file that was moved is sent
// all the same.
func TestFolderIsNotSynced(t *testing.T) {
	dir, data := t.TempDir(), t.TempDir()
	q := open(t, dir)
	broken := errors.New("input/output error")
	q.syncFolder = func(folder string) error {
		if folder == q.path(folderObjects) {
			return broken
		}
		return syncFolder(folder)
	}
	source := func(name string, move bool) Source {
		t.Helper()
		path := filepath.Join(data, name)
		if err := os.WriteFile(path, []byte("frame "+name), 0o640); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		s := Source{Name: name, Path: path, Observed: info.ModTime(), Move: move}
		if !move {
			sum := sha256.Sum256([]byte(name))
			copy(s.Key[:], sum[:])
		}
		return s
	}
	copied, moved := source("copied", false), source("moved", true)
	entries, err := q.Add(copied, moved)
	if !errors.Is(err, broken) || len(entries) != 1 || content(t, q, entries[0]) != "frame moved" {
		t.Fatalf("added %v, %v", entries, err)
	}
	if q.Taken(copied.Key) {
		t.Error("what may not survive a power cut counts as taken")
	}
	if b, err := os.ReadFile(copied.Path); err != nil || string(b) != "frame copied" {
		t.Errorf("the source: %q, %v", b, err)
	}
	if files, err := os.ReadDir(q.path(folderObjects)); err != nil || len(files) != 1 {
		t.Errorf("entries %v, %v", files, err)
	}
	q.syncFolder = syncFolder
	entries, err = q.Add(copied)
	if err != nil || len(entries) != 1 || content(t, q, entries[0]) != "frame copied" || !q.Taken(copied.Key) {
		t.Errorf("once it works: %v, %v", entries, err)
	}
}

// TestWholeNames: the whole name of an entry is there after a restart, stays with what is set aside, and goes with what is done.
func TestWholeNames(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir)
	bytes := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("frame")), nil }
	entries, err := q.Add(Source{Name: "short", Whole: strings.Repeat("d/", 95) + "a", Open: bytes}, Source{Name: "other", Whole: "b/c", Open: bytes}, Source{Name: "plain", Open: bytes})
	if err != nil || len(entries) != 3 {
		t.Fatalf("%+v, %v", entries, err)
	}
	orphan := Entry{Millis: 1, Name: "orphan"}
	if err := os.WriteFile(filepath.Join(dir, folderNames, orphan.File()), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	closeQueue(t, q)
	q = open(t, dir)
	for i, want := range []string{strings.Repeat("d/", 95) + "a", "b/c", ""} {
		if whole, err := q.Whole(entries[i]); err != nil || whole != want {
			t.Errorf("%s: %q, %v, want %q", entries[i].Name, whole, err, want)
		}
	}
	if err := errors.Join(q.Done(entries[0]), q.SetAside(entries[1], Refused, "why"), q.Done(entries[2])); err != nil {
		t.Error(err)
	}
	closeQueue(t, q)
	q = open(t, dir)
	left, err := os.ReadDir(filepath.Join(dir, folderNames))
	if err != nil || len(left) != 1 || left[0].Name() != entries[1].File() {
		t.Errorf("names of %v are left, %v", left, err)
	}
	if whole, err := q.Whole(entries[1]); err != nil || whole != "b/c" {
		t.Errorf("of what is set aside: %q, %v", whole, err)
	}
}
