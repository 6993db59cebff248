// SPDX-License-Identifier: Apache-2.0

//go:build linux

package objectstore_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
)

// newFolder is a bucket in a folder.
func newFolder(t *testing.T, dir string) objectstore.Store {
	t.Helper()
	store := open(t, objectstore.Config{Endpoint: "file://" + dir, Bucket: "archive"})
	if _, err := store.EnsureBucket(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store
}

// keysOf lists a bucket.
func keysOf(t *testing.T, store objectstore.Store, prefix, after string) (keys []string) {
	t.Helper()
	for info, err := range store.List(t.Context(), prefix, after) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	return keys
}

// TestFolderKeys: whatever a key is, its object comes back under it, nothing lies outside the bucket, and lists are in the order of bytes.
func TestFolderKeys(t *testing.T) {
	dir := t.TempDir()
	f := newFolder(t, dir)
	keys := []string{"plain", "a-b/x", "a/x", "a0/x", "a.b", "../../outside", "..", "./here", "x/../../y", "/absolute", "a//b", "ends/", "%", "%25", "per%2Ecent",
		".substorm/hidden", "x/.substorm", "new\nline", "nul\x00byte", "not\xffutf8", "nordlys ★ über", strings.Repeat("n", 255)}
	source := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		key := make([]byte, 1+source.IntN(12))
		for i := range key {
			key[i] = `ab./%-0`[source.IntN(7)]
		}
		keys = append(keys, string(key))
	}
	var stored []string
	for _, key := range keys {
		err := put(t.Context(), f, key, []byte(key), objectstore.PutOptions{CreateOnly: true})
		switch {
		case err == nil:
			stored = append(stored, key)
		case errors.Is(err, objectstore.ErrExists), strings.Contains(err.Error(), "a name is a file or a folder"):
		default:
			t.Errorf("%q: %v", key, err)
		}
	}
	if len(stored) < 100 {
		t.Fatalf("%d keys were stored: this test shows little", len(stored))
	}
	slices.Sort(stored)
	for _, prefix := range []string{"", "a", "a/", "a-", "%", ".", "../", "a//"} {
		for _, after := range []string{"", "a/", "a-b/x", "b"} {
			var want []string
			for _, key := range stored {
				if strings.HasPrefix(key, prefix) && key > after {
					want = append(want, key)
				}
			}
			if got := keysOf(t, f, prefix, after); !slices.Equal(got, want) {
				t.Errorf("prefix %q after %q:\n%q, want\n%q", prefix, after, got, want)
			}
		}
	}
	for _, key := range stored {
		if body, err := get(t.Context(), f, key, objectstore.All); err != nil || string(body) != key {
			t.Errorf("%q holds %q, %v", key, body, err)
		}
		if err := f.Delete(t.Context(), key); err != nil {
			t.Errorf("delete %q: %v", key, err)
		}
	}
	if left := keysOf(t, f, "", ""); len(left) != 0 {
		t.Errorf("after all were deleted there are %q", left)
	}
	for _, folder := range []string{dir, filepath.Join(dir, "archive")} { // empty folders go, too
		if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 {
			t.Errorf("%s holds %v, %v", folder, entries, err)
		}
	}
	if err := put(t.Context(), f, strings.Repeat("n", 255+1), nil, objectstore.PutOptions{}); !errors.Is(err, objectstore.ErrName) {
		t.Errorf("a name that is too long: %v", err)
	}
}

// TestFolderRaces: puts and deletes of neighbours, whose folders come and go, lose nothing.
func TestFolderRaces(t *testing.T) {
	f := newFolder(t, t.TempDir())
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := range 100 {
				key := fmt.Sprintf("a/b/%d-%d", worker, i)
				if err := put(t.Context(), f, key, []byte(key), objectstore.PutOptions{CreateOnly: true}); err != nil {
					t.Errorf("put: %v", err)
				}
				if _, err := f.Head(t.Context(), key); err != nil {
					t.Errorf("head: %v", err)
				}
				if err := f.Delete(t.Context(), key); err != nil {
					t.Errorf("delete: %v", err)
				}
			}
		})
	}
	all.Wait()
	if left := keysOf(t, f, "", ""); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// TestFolderPowerCut: what was acknowledged is there after a power cut, with what is known of it; without syncs it is not.
func TestFolderPowerCut(t *testing.T) {
	lost := func(synced bool) (lost int) {
		image, dir := testenv.Disk(t)
		f := newFolder(t, dir)
		if !synced {
			objectstore.Unsynced(f)
		}
		if out, err := exec.Command("sync", "-f", dir).CombinedOutput(); err != nil { // the bucket itself
			t.Fatalf("%v: %s", err, out)
		}
		bodies := map[string][]byte{}
		for i := range 60 {
			key := fmt.Sprintf("o/hub/camera/%02d/%02d", i%7, i)
			body := bytes.Repeat([]byte{byte(i)}, 1000*(1+i%20))
			if err := put(t.Context(), f, key, body, objectstore.PutOptions{Metadata: map[string]string{"Number": fmt.Sprint(i)}, Digest: sha256.Sum256(body), CreateOnly: i%2 == 0}); err != nil {
				t.Fatal(err)
			}
			bodies[key] = body
		}
		after := newFolder(t, testenv.CutPower(t, image))
		for key, body := range bodies {
			got, err := get(t.Context(), after, key, objectstore.All)
			info, known := after.Head(t.Context(), key)
			if err != nil || known != nil || !bytes.Equal(got, body) || info.Metadata["Number"] == "" {
				lost++
			}
		}
		return lost
	}
	if n := lost(true); n != 0 {
		t.Errorf("%d objects are lost that were acknowledged", n)
	}
	if n := lost(false); n == 0 {
		t.Error("nothing is lost without syncs: this test shows nothing")
	}
}

// TestFolderFull: a disk without space, one that cannot be written, and one without the bucket are told apart.
func TestFolderFull(t *testing.T) {
	_, dir := testenv.DiskOf(t, 8<<20)
	f := newFolder(t, dir)
	big := bytes.Repeat([]byte{1}, 16<<20)
	if err := put(t.Context(), f, "big", big, objectstore.PutOptions{}); !errors.Is(err, objectstore.ErrFull) {
		t.Errorf("a full disk: %v", err)
	}
	if _, err := f.Head(t.Context(), "big"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("what had no space: %v", err)
	}
	if err := put(t.Context(), f, "small", []byte("x"), objectstore.PutOptions{}); err != nil {
		t.Errorf("what has space: %v", err)
	}
	if out, err := exec.Command("mount", "-o", "remount,ro", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := put(t.Context(), f, "more", []byte("x"), objectstore.PutOptions{}); !errors.Is(err, objectstore.ErrUnavailable) || errors.Is(err, objectstore.ErrFull) {
		t.Errorf("a disk that cannot be written: %v", err)
	}
	if _, err := f.Head(t.Context(), "small"); err != nil {
		t.Errorf("reading from it: %v", err)
	}
	f = open(t, objectstore.Config{Endpoint: "file://" + dir, Bucket: "none"})
	if err := put(t.Context(), f, "x", nil, objectstore.PutOptions{}); !errors.Is(err, objectstore.ErrNoBucket) {
		t.Errorf("no bucket: %v", err)
	}
}
