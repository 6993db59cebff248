// SPDX-License-Identifier: Apache-2.0

//go:build linux

package objectstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// inFolder is a bucket in a folder.
func inFolder(t testing.TB, dir string) objectstore.Store {
	t.Helper()
	store, err := objectstore.Open(objectstore.Config{Endpoint: objectstore.FolderEndpoint(dir), Bucket: "archive"})
	if err == nil {
		_, err = store.EnsureBucket(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// listed are the keys of a bucket.
func listed(t *testing.T, store objectstore.Store, prefix, after string) (keys []string) {
	t.Helper()
	for info, err := range store.List(t.Context(), prefix, after) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	return keys
}

func folders(t *testing.T, store objectstore.Store, prefix string) (names []string) {
	t.Helper()
	for name, err := range store.Folders(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// filesIn returns the paths of all files below dir, none if dir does not exist.
func filesIn(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			paths = append(paths, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return paths
}

// TestFolderFiles: an object is a plain file where its key says, and plain files are objects.
func TestFolderFiles(t *testing.T) {
	dir := t.TempDir()
	store := inFolder(t, dir)
	body := []byte("plain bytes")
	for key, path := range map[string]string{
		"o/hub/cam/r/2026/11/21/x.fits": "o/hub/cam/r/2026/11/21/x.fits",
		"nordlys ★ über":                "nordlys ★ über",
		"not\xffutf8":                   "not\xffutf8",
		".hidden":                       "%2Ehidden",
		"a/../b":                        "a/%2E./b",
		"per%cent":                      "per%25cent",
		"new\nline\x00":                 "new%0Aline%00",
		"/two//slashes/":                "%/two/%/slashes/%",
		"both":                          "both/%object",
		"both/beneath":                  "both/beneath",
		strings.Repeat("n", 500) + "/x": strings.Repeat("n", 240) + "%+/" + strings.Repeat("n", 240) + "%+/" + strings.Repeat("n", 20) + "/x",
	} {
		if err := put(t.Context(), store, key, body, objectstore.PutOptions{}); err != nil {
			t.Errorf("%q: %v", key, err)
		}
		if key == "both" { // whether before or after the other
			continue
		}
		if got, err := os.ReadFile(filepath.Join(dir, "archive", path)); err != nil || !bytes.Equal(got, body) {
			t.Errorf("%q: %q, %v", key, got, err)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "archive/both/%object")); err != nil || !bytes.Equal(got, body) {
		t.Errorf("the object of a folder's name: %q, %v", got, err)
	}
	byHand(t, filepath.Join(dir, "archive"))
	wantBytes(t, store, "by/hand", []byte("mine"))
	if info, err := store.Head(t.Context(), "by/hand"); err != nil || info.ContentType != "application/octet-stream" || len(info.Metadata) != 0 {
		t.Errorf("%+v, %v", info, err)
	}
	if got := listed(t, store, "by/", ""); !slices.Equal(got, []string{"by/hand"}) {
		t.Errorf("by hand: %q", got)
	}
	for _, key := range []string{"by/pipe", "by/link"} {
		if _, err := store.Head(t.Context(), key); err == nil {
			t.Errorf("%s is an object", key)
		}
	}
}

// byHand puts into a bucket's folder what a person may.
func byHand(t *testing.T, bucket string) {
	t.Helper()
	outside := filepath.Join(t.TempDir(), "secret")
	by := filepath.Join(bucket, "by")
	for _, err := range []error{
		os.WriteFile(outside, []byte("secret"), 0o600),
		os.MkdirAll(filepath.Join(by, "empty", "folder"), 0o755),
		os.WriteFile(filepath.Join(by, "hand"), []byte("mine"), 0o600),
		os.WriteFile(filepath.Join(by, "100%.txt"), []byte("no key has this name"), 0o600),
		os.WriteFile(filepath.Join(by, ".DS_Store"), []byte("no key has this name"), 0o600),
		os.Symlink(outside, filepath.Join(by, "link")),
		unix.Mkfifo(filepath.Join(by, "pipe"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// hostile are keys that lead out of a folder where they are taken for paths, and others that file systems do not take.
var hostile = []string{
	"../../outside", "..", ".", "./here", "x/../../y", "/absolute", "//", "/", "a//b", "ends/", "ends", "%", "%25", "%2E", "per%2Ecent", "%object", "both/%object", "both",
	".substorm/hidden", ".substorm", "x/.substorm", "new\nline", "nul\x00byte", "nul\x00", "not\xffutf8", "back\\slash", "nordlys ★ über", "%+", "n%+/x", "*", "-rf", "~",
	strings.Repeat("n", 239), strings.Repeat("n", 240), strings.Repeat("n", 241), strings.Repeat("n", 255), strings.Repeat("n", 256), strings.Repeat("n", 1024),
	strings.Repeat("n", 240) + "/x", strings.Repeat("n", 240) + "-/x", strings.Repeat("%", 100), strings.Repeat("%", 80), strings.Repeat("\x00", 700), strings.Repeat("★", 200),
	strings.Repeat("/", 300), strings.Repeat("a/", 511) + "a", strings.Repeat("../", 300) + "etc/passwd",
}

// A bucket that is gone while it is used is not recreated: its content is elsewhere, and comes back.
func TestFolderGone(t *testing.T) {
	dir := t.TempDir()
	store := inFolder(t, dir)
	if err := store.Put(t.Context(), "one", strings.NewReader("1"), 1, objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	bucket, away := filepath.Join(dir, "archive"), filepath.Join(dir, "away")
	if err := os.Rename(bucket, away); err != nil {
		t.Fatal(err)
	}
	created, err := store.EnsureBucket(t.Context())
	if created || !errors.Is(err, objectstore.ErrNoBucket) || !strings.Contains(err.Error(), bucket) {
		t.Errorf("made anew: %v, %v", created, err)
	}
	if err := store.Put(t.Context(), "two", strings.NewReader("2"), 1, objectstore.PutOptions{}); !errors.Is(err, objectstore.ErrNoBucket) {
		t.Errorf("put: %v", err)
	}
	if err := os.Rename(away, bucket); err != nil {
		t.Fatal(err)
	}
	if created, err := store.EnsureBucket(t.Context()); created || err != nil {
		t.Errorf("when it is back: %v, %v", created, err)
	}
	if keys := listed(t, store, "", ""); !slices.Equal(keys, []string{"one"}) {
		t.Errorf("it has %q", keys)
	}
}

// TestFolderKeys: whatever a key is, its object comes back under it, nothing lies outside the bucket, and lists are in the order of bytes.
func TestFolderKeys(t *testing.T) {
	dir := t.TempDir()
	store := inFolder(t, dir)
	keys := map[string]bool{}
	for _, key := range hostile {
		keys[key] = true
	}
	source := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"a", "b", "/", ".", "%", "-", "0", "%object", "\x00", "\xff", "★", strings.Repeat("l", 120)}
	for len(keys) < 600 {
		var key strings.Builder
		for range 1 + source.IntN(8) {
			key.WriteString(pieces[source.IntN(len(pieces))])
		}
		keys[key.String()] = true
	}
	all := slices.Sorted(maps.Keys(keys))
	each := func(call func(key string)) {
		var group errgroup.Group
		group.SetLimit(16)
		for key := range keys { // in any order: objects become folders, and the other way round
			group.Go(func() error { call(key); return nil })
		}
		_ = group.Wait()
	}
	each(func(key string) {
		if err := put(t.Context(), store, key, []byte(key), objectstore.PutOptions{CreateOnly: true}); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	})
	for range 150 {
		prefix, after := part(source, all), part(source, all)
		want := slices.DeleteFunc(slices.Clone(all), func(key string) bool { return !strings.HasPrefix(key, prefix) || key <= after })
		if diff := cmp.Diff(want, listed(t, store, prefix, after), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("prefix %q after %q (-want +got):\n%s", prefix, after, diff)
		}
		folder := prefix[:strings.LastIndexByte(prefix, '/')+1]
		if diff := cmp.Diff(foldersOf(all, folder), folders(t, store, folder)); diff != "" {
			t.Fatalf("folders of %q (-want +got):\n%s", folder, diff)
		}
	}
	for _, path := range filesIn(t, dir) {
		if !strings.HasPrefix(path, "archive/") || strings.HasPrefix(path, "archive/.substorm/unfinished/") {
			t.Errorf("%q lies outside the bucket, or is left over", path)
		}
	}
	each(func(key string) {
		wantBytes(t, store, key, []byte(key))
		if err := put(t.Context(), store, key, nil, objectstore.PutOptions{CreateOnly: true}); !errors.Is(err, objectstore.ErrExists) {
			t.Errorf("%q again: %v", key, err)
		}
		if err := store.Delete(t.Context(), key); err != nil {
			t.Errorf("delete %q: %v", key, err)
		}
		if _, err := store.Head(t.Context(), key); !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("after delete of %q: %v", key, err)
		}
	})
	if left, err := os.ReadDir(filepath.Join(dir, "archive")); err != nil || len(left) != 1 {
		t.Errorf("after all are deleted: %v, %v", left, err)
	}
	for _, key := range []string{"", strings.Repeat("n", 1025)} {
		if err := put(t.Context(), store, key, nil, objectstore.PutOptions{}); err == nil {
			t.Errorf("a key of %d bytes was stored", len(key))
		}
		if _, err := store.Head(t.Context(), key); !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("a key of %d bytes: %v", len(key), err)
		}
	}
}

// part is the beginning of one of these, or something near it.
func part(source *rand.Rand, all []string) string {
	key := all[source.IntN(len(all))]
	key = key[:source.IntN(len(key)+1)]
	if source.IntN(3) == 0 {
		key += "/"
	}
	return key
}

// foldersOf is what Folders promises.
func foldersOf(all []string, prefix string) (names []string) {
	for _, key := range all {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			if name, _, ok := strings.Cut(rest, "/"); ok && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(a+"/", b+"/") })
	return names
}

// TestFolderRaces: neighbours that come and go, and objects that become folders meanwhile, take nothing from each other.
func TestFolderRaces(t *testing.T) {
	dir := t.TempDir()
	store := inFolder(t, dir)
	var all sync.WaitGroup
	steady := func(name string, call func(i int) error) {
		all.Go(func() {
			for i := range 100 {
				if err := call(i); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	if err := put(t.Context(), store, "a", []byte("0"), objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	for worker := range 4 {
		steady("come and go", func(i int) error {
			key := fmt.Sprintf("a/b/%d/%d", worker, i)
			err := put(t.Context(), store, key, []byte(key), objectstore.PutOptions{CreateOnly: true})
			_, head := store.Head(t.Context(), key)
			return errors.Join(err, head, store.Delete(t.Context(), key))
		})
	}
	steady("an object that was there all the time", func(int) error {
		body, err := get(t.Context(), store, "a", objectstore.All)
		if err == nil && len(body) == 0 {
			err = errors.New("is empty")
		}
		return err
	})
	steady("replaced", func(i int) error {
		return put(t.Context(), store, "a", []byte(fmt.Sprint(i)), objectstore.PutOptions{})
	})
	steady("folders", func(int) error {
		for _, err := range store.Folders(t.Context(), "a/") {
			if err != nil {
				return err
			}
		}
		return nil
	})
	steady("listed", func(int) error {
		for _, err := range store.List(t.Context(), "", "") {
			if err != nil {
				return err
			}
		}
		return nil
	})
	all.Wait()
	wantBytes(t, store, "a", []byte("99"))
	if got := listed(t, store, "", ""); !slices.Equal(got, []string{"a"}) {
		t.Errorf("left: %q", got)
	}
	if got := folders(t, store, ""); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}

// TestFolderMany: a folder of many names is gone through in order, and from any place.
func TestFolderMany(t *testing.T) {
	dir := mounted(t, "tmpfs", "") // others take a minute to make and remove so many files
	store := inFolder(t, dir)
	many := filepath.Join(dir, "archive", "many")
	if err := os.Mkdir(many, 0o755); err != nil {
		t.Fatal(err)
	}
	const names = 100_000
	for i := range names {
		if err := os.WriteFile(filepath.Join(many, fmt.Sprintf("%06d", i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	found := listed(t, store, "many/", "")
	if len(found) != names || !slices.IsSorted(found) {
		t.Errorf("%d names, sorted: %v", len(found), slices.IsSorted(found))
	}
	if found := listed(t, store, "many/", "many/099989"); len(found) != 10 {
		t.Errorf("at the end: %q", found)
	}
	if found := folders(t, store, ""); !slices.Equal(found, []string{"many"}) {
		t.Errorf("folders: %q", found)
	}
}

// TestFolderUploads: parts of one length are written where they stay; all others are put together.
func TestFolderUploads(t *testing.T) {
	dir := t.TempDir()
	store := inFolder(t, dir)
	const least = objectstore.MinPart
	body := random(t, 3*least+5000)
	bounds := map[string][]int{
		"one length":         {0, least, 2 * least, len(body)},
		"several":            {0, least + 1, 2*least + 1, len(body)},
		"the last is larger": {0, least, len(body)},
		"one part":           {0, len(body)},
	}
	for name, bounds := range bounds {
		for _, order := range []string{"forward", "backward", "sent again"} {
			t.Run(name+" "+order, func(t *testing.T) {
				key := name + "/" + order
				u, err := store.NewUpload(t.Context(), key, objectstore.PutOptions{CreateOnly: true, Metadata: map[string]string{"Order": order}})
				if err != nil {
					t.Fatal(err)
				}
				send := func(number int, body []byte) {
					if err := u.Part(t.Context(), number, bytes.NewReader(body), int64(len(body)), wire.Digest{}); err != nil {
						t.Fatal(err)
					}
				}
				for i := range len(bounds) - 1 {
					if order == "backward" {
						i = len(bounds) - 2 - i
					}
					if order == "sent again" {
						send(i+1, random(t, least+i*17))
						if err := u.Part(t.Context(), i+1, strings.NewReader("short"), 6, wire.Digest{}); err == nil {
							t.Error("a part that ends early arrived")
						}
					}
					send(i+1, body[bounds[i]:bounds[i+1]])
				}
				if err := u.Complete(t.Context()); err != nil {
					t.Fatal(err)
				}
				wantBytes(t, store, key, body)
			})
		}
	}
	u, err := store.NewUpload(t.Context(), "in place", objectstore.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sendParts(t, u, body)
	uploads, err := filepath.Glob(filepath.Join(dir, "archive/.substorm/uploads/*/object"))
	if err != nil || len(uploads) != 1 {
		t.Fatalf("uploads: %q, %v", uploads, err)
	}
	before, err := os.Stat(uploads[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(filepath.Join(dir, "archive/in place")); err != nil || !os.SameFile(before, after) {
		t.Errorf("the parts were copied: %v", err)
	}
	if n, err := store.AbortOldUploads(t.Context(), "", time.Now().Add(time.Hour)); err != nil || n != 0 {
		t.Errorf("left are %d uploads, %v", n, err)
	}
	if left := filesIn(t, filepath.Join(dir, "archive/.substorm")); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}
