// SPDX-License-Identifier: Apache-2.0

//go:build linux

package objectstore_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/objectstore"
)

// manyFiles makes so many files in one folder of a bucket, as a day of an instrument is, and returns the prefix of their keys.
func manyFiles(t *testing.T, dir string, count int) (prefix string) {
	t.Helper()
	prefix = fmt.Sprintf("o/thule/allsky-1/r/2026/11/%d/", count)
	folder := filepath.Join(dir, "archive", prefix)
	if err := os.MkdirAll(folder, 0o750); err != nil {
		t.Fatal(err)
	}
	for _, n := range rand.Perm(count) {
		file, err := os.OpenFile(filepath.Join(folder, fmt.Sprintf("%013d-%016x", 1_795_000_000_000+n, n)), os.O_CREATE|os.O_WRONLY, 0o640)
		if err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return prefix
}

// heldWhile is how many bytes are live in the middle of a list of so many objects, beside what is live before.
func heldWhile(t *testing.T, store objectstore.Store, prefix string, count int) int64 {
	t.Helper()
	live := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, held, at, last := live(), int64(0), 0, ""
	for info, err := range store.List(t.Context(), prefix, "") {
		if err != nil || info.Key <= last {
			t.Fatalf("%q after %q: %v", info.Key, last, err)
		}
		last = info.Key
		if at++; at == 1 || at == count/2 {
			held = max(held, live()-before)
		}
	}
	if at != count {
		t.Errorf("%d objects are listed, there are %d", at, count)
	}
	return held
}

// The memory of a list does not grow with the folder.
func TestListHoldsPartOfAFolder(t *testing.T) {
	defer objectstore.HoldNames(32)()
	dir := t.TempDir()
	store := inFolder(t, dir)
	const few, many = 200, 1_000
	small := heldWhile(t, store, manyFiles(t, dir, few), few)
	large := heldWhile(t, store, manyFiles(t, dir, many), many)
	if slope := float64(large-small) / (many - few); slope > 32 {
		t.Errorf("%d bytes for %d objects and %d for %d: %.0f bytes for each one more", small, few, large, many, slope)
	}
}

// A day of a million objects: SUBSTORM_TEST_LIST says how many.
func TestListOfALargeFolder(t *testing.T) {
	count, err := strconv.Atoi(os.Getenv("SUBSTORM_TEST_LIST"))
	if err != nil {
		t.Skip("set SUBSTORM_TEST_LIST to a number of objects, a million say")
	}
	dir := t.TempDir()
	store := inFolder(t, dir)
	held := heldWhile(t, store, manyFiles(t, dir, count), count)
	t.Logf("%d bytes are held while %d objects are listed", held, count)
	if held > 16<<20 {
		t.Errorf("%d bytes are held while %d objects are listed, at most 16 MiB may be", held, count)
	}
}

// In several readings a folder has the same objects in the same order as in one, whatever their names are, and wherever a list begins.
func TestListInSeveralReadings(t *testing.T) {
	store := inFolder(t, t.TempDir())
	var want []string
	for i := range 60 {
		for _, key := range []string{fmt.Sprintf("a/%d", i), fmt.Sprintf("a/%d/b", i), fmt.Sprintf("a/%d.x", i), fmt.Sprintf("a/%%%d", i)} {
			if err := put(t.Context(), store, key, []byte("abc"), objectstore.PutOptions{}); err != nil {
				t.Fatal(err)
			}
			want = append(want, key)
		}
	}
	slices.Sort(want)
	defer objectstore.HoldNames(8)()
	for _, from := range []int{-1, 0, 17, 120, len(want) - 1} {
		after := ""
		if from >= 0 {
			after = want[from]
		}
		if diff := cmp.Diff(want[from+1:], keys(t, store, "a/", after)); diff != "" && from != len(want)-1 {
			t.Errorf("after %q: -want +got:\n%s", after, diff)
		}
	}
}
