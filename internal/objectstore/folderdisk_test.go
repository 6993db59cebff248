// SPDX-License-Identifier: Apache-2.0

//go:build linux

package objectstore_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/objectstore"
)

func init() {
	otherServers["folder"] = func(t *testing.T) objectstore.Config {
		return objectstore.Config{Endpoint: objectstore.FolderEndpoint(t.TempDir()), Bucket: "conformance"}
	}
	otherServers["folder without attributes"] = func(t *testing.T) objectstore.Config {
		return objectstore.Config{Endpoint: objectstore.FolderEndpoint(withoutAttributes(t)), Bucket: "conformance"}
	}
}

// withoutAttributes is a folder whose file system has no extended attributes.
func withoutAttributes(t *testing.T) string { return mounted(t, "ramfs", "") }

// mounted is a file system of its own.
func mounted(t *testing.T, kind, options string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a file system of its own needs a mount, which needs root (CAP_SYS_ADMIN)")
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", kind, "-o", "rw,"+options, "objectstore-test", dir).CombinedOutput(); err != nil {
		t.Skipf("a file system of its own needs a mount (CAP_SYS_ADMIN): %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// TestFolderAside: what is known of an object is kept without attributes, too, and goes with it.
func TestFolderAside(t *testing.T) {
	dir := withoutAttributes(t)
	store := inFolder(t, dir)
	about := func(text string) objectstore.PutOptions {
		return objectstore.PutOptions{ContentType: "image/fits", Metadata: map[string]string{"Text": text}}
	}
	want := func(key, text string) {
		t.Helper()
		info, err := store.Head(t.Context(), key)
		if err != nil || info.Metadata["Text"] != text || info.ContentType != "image/fits" {
			t.Errorf("%s: %+v, %v", key, info, err)
		}
	}
	for _, key := range []string{"a", "a/b"} {
		for _, text := range []string{"first", "second"} {
			if err := put(t.Context(), store, key, []byte(text), about(text)); err != nil {
				t.Fatal(err)
			}
			want(key, text)
		}
		opts := about("third")
		opts.CreateOnly = true
		if err := put(t.Context(), store, key, []byte("third"), opts); !errors.Is(err, objectstore.ErrExists) {
			t.Errorf("create-only: %v", err)
		}
	}
	objectstore.Forgotten(store)
	store = inFolder(t, dir)
	want("a", "second")
	want("a/b", "second")
	asides := filepath.Join(dir, "archive/.substorm/metadata")
	if left := filesIn(t, asides); len(left) != 2 {
		t.Errorf("of two objects: %q", left)
	}
	for _, key := range []string{"a", "a/b"} {
		if err := store.Delete(t.Context(), key); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(asides); err != nil || len(left) != 0 {
		t.Errorf("of no object: %v, %v", left, err)
	}
}

// TestFolderFull: a disk without space takes nothing and loses nothing.
func TestFolderFull(t *testing.T) {
	dir := mounted(t, "tmpfs", "size=4m")
	store := inFolder(t, dir)
	first := random(t, 1<<20)
	if err := put(t.Context(), store, "first", first, objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"big", "first"} {
		if err := put(t.Context(), store, key, random(t, 8<<20), objectstore.PutOptions{}); !errors.Is(err, objectstore.ErrFull) || !errors.Is(err, objectstore.ErrUnavailable) {
			t.Errorf("a full disk: %v", err)
		}
	}
	u, err := store.NewUpload(t.Context(), "big", objectstore.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	part := random(t, 8<<20)
	if err := u.Part(t.Context(), 1, bytes.NewReader(part), int64(len(part)), [32]byte{}); !errors.Is(err, objectstore.ErrFull) {
		t.Errorf("a full disk: %v", err)
	}
	if err := u.Abort(t.Context()); err != nil {
		t.Error(err)
	}
	wantBytes(t, store, "first", first)
	if got := listed(t, store, "", ""); !slices.Equal(got, []string{"first"}) {
		t.Errorf("listed: %q", got)
	}
	if err := put(t.Context(), store, "second", first, objectstore.PutOptions{}); err != nil {
		t.Errorf("what has space: %v", err)
	}
	if left := filesIn(t, dir); len(left) != 2 {
		t.Errorf("left over: %q", left)
	}
}

// TestFolderRefused: the errors for a disk that cannot be written, a folder of another user, and a missing folder say what to do.
func TestFolderRefused(t *testing.T) {
	dir := mounted(t, "tmpfs", "size=4m")
	store := inFolder(t, dir)
	if err := put(t.Context(), store, "a/first", []byte("abc"), objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-o", "remount,ro", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	objectstore.Forgotten(store)
	store = open(t, objectstore.Config{Endpoint: objectstore.FolderEndpoint(dir), Bucket: "archive"})
	calls := map[string]error{
		"put":    put(t.Context(), store, "more", []byte("x"), objectstore.PutOptions{}),
		"copy":   store.Copy(t.Context(), "a/first", "more", objectstore.PutOptions{}),
		"delete": store.Delete(t.Context(), "a/first"),
		"upload": func() error { _, err := store.NewUpload(t.Context(), "more", objectstore.PutOptions{}); return err }(),
		"bucket": func() error {
			_, err := open(t, objectstore.Config{Endpoint: objectstore.FolderEndpoint(dir), Bucket: "other"}).EnsureBucket(t.Context())
			return err
		}(),
	}
	for call, err := range calls {
		if !errors.Is(err, objectstore.ErrUnavailable) || errors.Is(err, objectstore.ErrFull) || !strings.Contains(err.Error(), "mount it for writing") {
			t.Errorf("%s on a disk that cannot be written: %v", call, err)
		}
	}
	wantBytes(t, store, "a/first", []byte("abc"))
	if err := store.CheckBucket(t.Context()); err != nil {
		t.Error(err)
	}
	if got := keys(t, store, "", ""); !slices.Equal(got, []string{"a/first"}) {
		t.Errorf("listed: %q", got)
	}
	for _, endpoint := range []string{"file://relative/folder", "file:folder", "file:///folder?x", "file://"} {
		if _, err := objectstore.Open(objectstore.Config{Endpoint: endpoint, Bucket: "archive"}); err == nil {
			t.Errorf("%s was opened", endpoint)
		}
	}
	for _, bucket := range []string{"", "..", "a/b", ".substorm"} {
		if _, err := objectstore.Open(objectstore.Config{Endpoint: objectstore.FolderEndpoint(dir), Bucket: bucket}); err == nil {
			t.Errorf("bucket %q was opened", bucket)
		}
	}
}

// TestFolderLeftOver: an unfinished file of a killed process is removed once it is old; files of running processes stay.
func TestFolderLeftOver(t *testing.T) {
	dir := t.TempDir()
	store := inFolder(t, dir)
	left := filepath.Join(dir, "archive/.substorm/unfinished")
	body := &slowBody{begun: make(chan struct{}), on: make(chan struct{})}
	stored := make(chan error)
	go func() { stored <- store.Put(t.Context(), "slow", body, 3, objectstore.PutOptions{}) }()
	<-body.begun
	if err := os.WriteFile(filepath.Join(left, "killed"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		before time.Time
		want   int
	}{{time.Now().Add(-time.Hour), 2}, {time.Now().Add(time.Hour), 1}} {
		if n, err := store.AbortOldUploads(t.Context(), "", c.before); err != nil || n != 0 {
			t.Errorf("aborted %d, %v", n, err)
		}
		if files := filesIn(t, left); len(files) != c.want {
			t.Errorf("left are %q", files)
		}
	}
	close(body.on)
	if err := <-stored; err != nil {
		t.Error(err)
	}
	wantBytes(t, store, "slow", []byte("abc"))
}

// slowBody is a body of three bytes that waits in the middle.
type slowBody struct{ begun, on chan struct{} }

func (b *slowBody) Seek(int64, int) (int64, error) { return 0, nil }

func (b *slowBody) Read(p []byte) (int, error) {
	close(b.begun)
	<-b.on
	return copy(p, "abc"), nil
}

// TestFolderPlace: a folder that this process made and another one removed is made again.
func TestFolderPlace(t *testing.T) {
	dir := t.TempDir()
	store := inFolder(t, dir)
	for _, key := range []string{"a/b/first", "a/b/second"} {
		if err := put(t.Context(), store, key, []byte("abc"), objectstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, "archive/a")); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"a/b/third", "a"} { // the latter beside the former
		if err := put(t.Context(), store, key, []byte("abc"), objectstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := keys(t, store, "", ""); !slices.Equal(got, []string{"a", "a/b/third"}) {
		t.Errorf("listed: %q", got)
	}
}
