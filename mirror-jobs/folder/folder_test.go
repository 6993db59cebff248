// SPDX-License-Identifier: Apache-2.0

package folder_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/mirror-jobs/folder"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

const camera = "allsky-1"

var storm = time.Date(2015, 3, 17, 12, 0, 0, 0, time.UTC)

func open(t *testing.T, dir string) *folder.Folder {
	t.Helper()
	f, err := folder.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func entry(path, body string) *mirrorindex.Entry {
	return &mirrorindex.Entry{Path: path, Size: int64(len(body)), Digest: sha256.Sum256([]byte(body)), ID: path, ReceivedAt: storm}
}

// A file has a path below its instrument, or none.
func TestPut(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	w := f.Writer()
	defer w.Close()
	for _, path := range []string{"a.jpg", "deep/er/b æ%.jpg", "deep/c.jpg", "a.jpg"} {
		if err := w.Put(camera, entry(path, path), []byte(path)); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(filepath.Join(dir, camera, path)); err != nil || string(data) != path {
			t.Errorf("%s: %q %v", path, data, err)
		}
		if err := f.Verify(camera, entry(path, path), true); err != nil || !f.Has(camera, entry(path, path)) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range []string{"", "..", "../b", "/b", "a/../../b", "a/./b", "a//b", ".substorm-1", "a\x00b", strings.Repeat("e", 256)} {
		if err := w.Put(camera, entry(path, "evil"), []byte("evil")); !errors.Is(err, folder.ErrPath) {
			t.Errorf("%.20q: %v", path, err)
		}
	}
	if err := f.Verify(camera, entry("a.jpg", "longer than that"), true); err == nil || !strings.Contains(err.Error(), "it has 5 bytes, and the list says 16") {
		t.Errorf("another size: %v", err)
	}
	if err := w.Put(camera, entry("a.jpg/b.jpg", "x"), []byte("x")); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("below a file: %v", err)
	}
	var differs *folder.DigestError
	if err := w.Put(camera, entry("d.jpg", "right"), []byte("wrong")); !errors.As(err, &differs) {
		t.Errorf("other bytes: %v", err)
	}
	// Nothing is written to the target of a link, neither through a folder nor through a file.
	outside := t.TempDir()
	if err := errors.Join(os.Symlink(outside, filepath.Join(dir, camera, "out")), os.Symlink(filepath.Join(outside, "f"), filepath.Join(dir, camera, "link"))); err != nil {
		t.Fatal(err)
	}
	if err := w.Put(camera, entry("out/x", "x"), []byte("x")); err == nil {
		t.Error("a link is followed")
	}
	if err := w.Put(camera, entry("link", "x"), []byte("x")); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside there is %v %v", left, err)
	}
}

// Remove removes the file of the given object, but not the file of another object that has its path by now.
func TestRemove(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	w := f.Writer()
	defer w.Close()
	old, now := entry("a/b.jpg", "old"), entry("a/b.jpg", "newer")
	for _, e := range []struct {
		*mirrorindex.Entry
		body string
	}{{old, "old"}, {now, "newer"}} {
		if err := w.Put(camera, e.Entry, []byte(e.body)); err != nil {
			t.Fatal(err)
		}
	}
	if removed, err := f.Remove(camera, old, nil); removed || err != nil || !f.Has(camera, now) {
		t.Errorf("another object's file: %v, %v", removed, err)
	}
	for _, want := range []bool{true, false} {
		if removed, err := f.Remove(camera, now, nil); removed != want || err != nil {
			t.Errorf("removed %v, want %v: %v", removed, want, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, camera)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("empty folders stay: %v", err)
	}
	if err := w.Put(camera, now, []byte("newer")); err != nil {
		t.Errorf("the folder is made again: %v", err)
	}
	// Its time was lost, as by cp -r.
	name := filepath.Join(dir, camera, now.Path)
	other := entry(now.Path, "older")
	if err := os.Chtimes(name, time.Time{}, storm.AddDate(1, 0, 0)); err != nil {
		t.Fatal(err)
	}
	if removed, err := f.Remove(camera, other, nil); removed || err != nil {
		t.Errorf("other bytes of the same size: %v, %v", removed, err)
	}
	for _, another := range []bool{true, false} {
		removed, err := f.Remove(camera, now, func() (bool, error) { return another, nil })
		if removed == another || err != nil {
			t.Errorf("another object with the same bytes: %v, removed %v: %v", another, removed, err)
		}
	}
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
}

// A large object continues where it was left, and is given up if it is another.
func TestLarge(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	body := bytes.Repeat([]byte("0123456789abcdef"), (2*folder.PartSize+1000)/16)
	e := entry("large.fits", string(body))
	part := func(l *folder.Large, n int) {
		t.Helper()
		offset, length := l.Range(n)
		if err := l.Write(n, 0, bytes.NewReader(body[offset:offset+length])); err != nil {
			t.Fatal(err)
		}
	}
	l, err := f.Large(camera, e)
	if err != nil {
		t.Fatal(err)
	}
	part(l, 2)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = f.Large(camera, e); err != nil || !cmp.Equal(l.Parts(), []int{0, 1}) {
		t.Fatalf("%v %v", l.Parts(), err)
	}
	part(l, 1)
	body[5]++
	part(l, 0)
	var differs *folder.DigestError
	if err := l.Finish(); !errors.As(err, &differs) {
		t.Fatalf("other bytes: %v", err)
	}
	body[5]--
	if l, err = f.Large(camera, e); err != nil || len(l.Parts()) != 3 {
		t.Fatalf("all is given up: %v %v", l.Parts(), err)
	}
	for n := range 3 {
		part(l, n)
	}
	if err := l.Finish(); err != nil || !f.Has(camera, e) {
		t.Errorf("%v", err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, ".substorm/parts")); err != nil || len(left) > 0 {
		t.Errorf("there is left %v %v", left, err)
	}
}

// A kill, after which the object is not closed, loses few of the parts that came.
func TestLargeKilled(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	body := bytes.Repeat([]byte("0123456789abcdef"), 6*folder.PartSize/16)
	e := entry("large.fits", string(body))
	write := func(l *folder.Large, n int) {
		t.Helper()
		offset, length := l.Range(n)
		if err := l.Write(n, 0, bytes.NewReader(body[offset:offset+length])); err != nil {
			t.Fatal(err)
		}
	}
	l, err := f.Large(camera, e)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		write(l, n)
	}
	note := filepath.Join(dir, ".substorm/parts", camera+"-"+e.Digest.String()+".json")
	testenv.Await(t, "the parts are noted", func() bool {
		_, err := os.Stat(note)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return err == nil
	})
	write(l, 4) // and is not noted yet
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f = open(t, dir)
	if l, err = f.Large(camera, e); err != nil || !cmp.Equal(l.Parts(), []int{4, 5}) {
		t.Fatalf("missing are %v, %v", l.Parts(), err)
	}
	write(l, 5)
	write(l, 4)
	if err := l.Finish(); err != nil || !f.Has(camera, e) {
		t.Errorf("%v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(note)); err != nil || len(left) > 0 {
		t.Errorf("there is left %v %v", left, err)
	}
}

// Parts of large objects that no list has any more go after a run; those of others, and all objects, stay.
func TestRemoveParts(t *testing.T) {
	dir := t.TempDir()
	body := bytes.Repeat([]byte("0123456789abcdef"), 2*folder.PartSize/16)
	vanished, listed := entry("vanished.fits", string(body)), entry("listed.fits", string(body[1:]))
	begin := func(f *folder.Folder, e *mirrorindex.Entry) {
		t.Helper()
		l, err := f.Large(camera, e)
		if err == nil {
			err = errors.Join(l.Write(0, 0, bytes.NewReader(body[:folder.PartSize])), l.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f := open(t, dir)
	if err := f.RemoveParts(); err != nil {
		t.Errorf("there are none: %v", err)
	}
	begin(f, vanished)
	begin(f, listed)
	if n, err := f.PartBytes(camera, vanished); err != nil || n < folder.PartSize {
		t.Errorf("its parts take %d bytes, %v", n, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f = open(t, dir)
	w := f.Writer()
	defer w.Close()
	if err := w.Put(camera, entry("a.jpg", "a"), []byte("a")); err != nil {
		t.Fatal(err)
	}
	begin(f, listed)
	if err := f.RemoveParts(); err != nil {
		t.Fatal(err)
	}
	for e, stays := range map[*mirrorindex.Entry]bool{vanished: false, listed: true} {
		if n, err := f.PartBytes(camera, e); err != nil || (n > 0) != stays {
			t.Errorf("%s: its parts take %d bytes, %v", e.Path, n, err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, ".substorm/parts")); err != nil || len(left) != 2 {
		t.Errorf("there is left %v, %v", left, err)
	}
	if !f.Has(camera, entry("a.jpg", "a")) {
		t.Error("an object is gone")
	}
	if err := f.RemoveObjects(); err != nil || f.Has(camera, entry("a.jpg", "a")) {
		t.Errorf("an object stays: %v", err)
	}
	if n, err := f.PartBytes(camera, listed); err != nil || n == 0 {
		t.Errorf("its parts are gone with the objects: %v", err)
	}
}

func TestLists(t *testing.T) {
	f := open(t, t.TempDir())
	want := []plan.Line{{Entry: *entry("a", "a"), Held: true}, {Entry: *entry("b", "b"), Gone: true}}
	if err := f.SetLines(camera, "2015-03-17", want); err != nil {
		t.Fatal(err)
	}
	got, err := f.Lines(camera, "2015-03-17")
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if days, err := f.Days(camera); err != nil || len(days) != 1 || days[0] != "2015-03-17" {
		t.Errorf("%v %v", days, err)
	}
	if err := errors.Join(f.BelongsTo("thule"), f.SetETag("x")); err != nil {
		t.Fatal(err)
	}
	if err := f.BelongsTo("kiruna"); err == nil || !strings.Contains(err.Error(), "is a mirror of site thule") {
		t.Errorf("another site: %v", err)
	}
}
