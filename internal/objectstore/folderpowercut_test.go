// SPDX-License-Identifier: Apache-2.0

//go:build linux

package objectstore_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// The environment in which this test's program is a process that stores objects in a folder until it is killed, and tells on its
// standard output what is acknowledged.
const (
	childDir    = "OBJECTSTORE_TEST_DIR"
	childUnsafe = "OBJECTSTORE_TEST_UNSAFE"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		fmt.Println("ended:", storeForever(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// storeForever has eight writers.
func storeForever(dir string) error {
	store, err := objectstore.Open(objectstore.Config{Endpoint: objectstore.FolderEndpoint(dir), Bucket: "archive"})
	if err != nil {
		return err
	}
	if os.Getenv(childUnsafe) != "" {
		objectstore.SyncBy(store, func(*os.File) error { return nil })
	}
	if _, err := store.EnsureBucket(context.Background()); err != nil {
		return err
	}
	w := &writer{Store: store, run: time.Now().UnixNano()}
	w.number.Store(uint64(w.run))
	failed := make(chan error, 1)
	for one := range 8 {
		go func() {
			for i := 0; ; i++ {
				if err := w.step(one, i); err != nil {
					failed <- err
				}
			}
		}()
	}
	return <-failed
}

// writer stores objects, each with a number and bytes that follow from it. It prints "stored KEY NUMBER" once an object is acknowledged,
// "deleting KEY" before and "deleted KEY" after a deletion.
type writer struct {
	objectstore.Store
	// run tells the keys of one process from those of another.
	run    int64
	number atomic.Uint64
}

// step is one of the things that programs do with a store.
func (w *writer) step(one, i int) error {
	key := fmt.Sprintf("o/hub/cam-%d/r/%d/%d/%d", one, w.run, i/20, i)
	switch i % 8 {
	case 0, 1, 2:
		return w.put(key, i%2 == 0)
	case 3:
		return w.put(fmt.Sprintf("replaced/%d", one), false)
	case 4: // an object becomes a folder
		return errors.Join(w.put(key, true), w.put(key+"/beneath/it", true))
	case 5:
		if err := w.put(key, true); err != nil {
			return err
		}
		fmt.Println("deleting", key)
		if err := w.Delete(context.Background(), key); err != nil {
			return err
		}
		fmt.Println("deleted", key)
		return nil
	case 6:
		return w.copy(key)
	default:
		if i%64 != 7 {
			return nil
		}
		return w.upload(key)
	}
}

func (w *writer) put(key string, createOnly bool) error {
	n := w.number.Add(1)
	body := bytesOf(n)
	err := w.Put(context.Background(), key, bytes.NewReader(body), int64(len(body)), optionsOf(n, createOnly))
	if err == nil {
		fmt.Println("stored", key, n)
	}
	return err
}

func (w *writer) copy(key string) error {
	from := key + "-from"
	if err := w.put(from, true); err != nil {
		return err
	}
	info, err := w.Head(context.Background(), from)
	if err == nil {
		err = w.Copy(context.Background(), from, key, objectstore.PutOptions{Metadata: info.Metadata, CreateOnly: true})
	}
	if err == nil {
		fmt.Println("stored", key, info.Metadata["Number"])
	}
	return err
}

// upload stores an object in two parts, with the bytes of another number after those of one.
func (w *writer) upload(key string) error {
	n := w.number.Add(1)
	ctx := context.Background()
	u, err := w.NewUpload(ctx, key, optionsOf(n, true))
	if err != nil {
		return err
	}
	first := append(bytesOf(n), make([]byte, objectstore.MinPart)...)
	err = u.Part(ctx, 1, bytes.NewReader(first), int64(len(first)), wire.Digest{})
	if err == nil {
		err = u.Part(ctx, 2, strings.NewReader("the end"), 7, wire.Digest{})
	}
	if err == nil {
		err = u.Complete(ctx)
	}
	if err == nil {
		fmt.Println("stored", key, n)
	}
	return err
}

// bytesOf are the bytes of the object of a number.
func bytesOf(n uint64) []byte {
	b := make([]byte, n*7919%40_000)
	_, _ = rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16)}).Read(b)
	return b
}

// optionsOf have, of some objects, more metadata than an attribute takes where blocks have 1 KiB.
func optionsOf(n uint64, createOnly bool) objectstore.PutOptions {
	metadata := map[string]string{"Number": fmt.Sprint(n)}
	if n%5 == 0 {
		metadata["Long"] = strings.Repeat("x", 1500)
	}
	return objectstore.PutOptions{Metadata: metadata, CreateOnly: createOnly}
}

// said is what a process printed before it was killed.
type said struct {
	// stored has the number that each key had last.
	stored map[string]uint64
	// deleting: whether the object is there is not known; deleted: it is not.
	deleting, deleted map[string]bool
}

// storeUntil runs a process for a while, kills it, and returns what it printed.
func storeUntil(t *testing.T, dir string, unsafe bool, after time.Duration) said {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	if unsafe {
		cmd.Env = append(cmd.Env, childUnsafe+"=1")
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	told := said{stored: map[string]uint64{}, deleting: map[string]bool{}, deleted: map[string]bool{}}
	var killer *time.Timer
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			break // a line without its end was not said
		}
		if killer == nil { // from the first acknowledgement on
			killer = time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		}
		told.take(t, strings.Fields(line))
	}
	_ = cmd.Wait()
	return told
}

func (s said) take(t *testing.T, words []string) {
	switch words[0] {
	case "stored":
		n, err := strconv.ParseUint(words[2], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		s.stored[words[1]] = max(n, s.stored[words[1]])
	case "deleting":
		s.deleting[words[1]] = true
	case "deleted":
		s.deleted[words[1]] = true
	default:
		t.Fatalf("the process says %q", words)
	}
}

// missing counts what was acknowledged and is not so. Whole: an object that is half there fails the test.
func (s said) missing(t *testing.T, dir string, whole bool) (missing int) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "archive")); err != nil && !whole {
		return len(s.stored)
	}
	store := open(t, objectstore.Config{Endpoint: objectstore.FolderEndpoint(dir), Bucket: "archive"})
	found := map[string]uint64{}
	for info, err := range store.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		n, err := numberOf(t, store, info.Key)
		if err != nil && whole {
			t.Fatalf("%s: %v", info.Key, err)
		}
		if err == nil {
			found[info.Key] = n
		}
	}
	for key, n := range s.stored {
		if found[key] < n && !s.deleting[key] {
			missing++
		}
	}
	for key := range s.deleted {
		if _, is := found[key]; is {
			missing++
		}
	}
	return missing
}

// numberOf reads an object and compares its bytes with those of its number.
func numberOf(t *testing.T, store objectstore.Store, key string) (uint64, error) {
	info, err := store.Head(t.Context(), key)
	if err != nil {
		return 0, err
	}
	body, err := get(t.Context(), store, key, objectstore.All)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(info.Metadata["Number"], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("metadata %v: %w", info.Metadata, err)
	}
	want := bytesOf(n)
	if len(body) > objectstore.MinPart { // an upload
		want = append(append(want, make([]byte, objectstore.MinPart)...), "the end"...)
	}
	if !bytes.Equal(body, want) {
		return 0, fmt.Errorf("%d bytes are not those of number %d", len(body), n)
	}
	return n, nil
}

// TestPowerCut: the power goes at a random moment. All that was acknowledged is there after it, with its metadata, and no object is
// half there. Without the syncs objects are lost, so the test would notice that they are missing.
func TestPowerCut(t *testing.T) {
	const disk = 400 << 20 // less than 512 MiB: mkfs.ext4 makes blocks of 1 KiB, and some metadata lies aside
	lost := func(t *testing.T, unsafe bool, after time.Duration) (dir string, all, missing int) {
		image, dir := testenv.DiskOf(t, disk)
		told := storeUntil(t, dir, unsafe, after)
		missing = told.missing(t, testenv.CutPower(t, image), !unsafe)
		t.Logf("after %v: %d acknowledged, %d lost", after, len(told.stored), missing)
		return dir, len(told.stored), missing
	}
	for range 3 {
		after := time.Duration(200+rand.IntN(800)) * time.Millisecond
		if _, all, missing := lost(t, false, after); all == 0 || missing > 0 {
			t.Errorf("of %d acknowledged objects %d are lost in a power cut", all, missing)
		}
	}
	testenv.Control(t, func(t *testing.T) (string, int) {
		dir, _, missing := lost(t, true, 300*time.Millisecond)
		return dir, missing
	})
}

// TestKill: killed again and again, and then without power: all that was acknowledged is there, also what one process found that
// another was killed over.
func TestKill(t *testing.T) {
	image, dir := testenv.DiskOf(t, 400<<20)
	all := said{stored: map[string]uint64{}, deleting: map[string]bool{}, deleted: map[string]bool{}}
	for range 3 {
		told := storeUntil(t, dir, false, time.Duration(rand.IntN(300))*time.Millisecond)
		for key, n := range told.stored {
			all.stored[key] = max(n, all.stored[key])
		}
		for key := range told.deleting {
			all.deleting[key] = true
		}
		for key := range told.deleted {
			all.deleted[key] = true
		}
		if n := all.missing(t, dir, true); n > 0 {
			t.Fatalf("of %d acknowledged objects %d are lost", len(all.stored), n)
		}
	}
	store := open(t, objectstore.Config{Endpoint: objectstore.FolderEndpoint(dir), Bucket: "archive"})
	if _, err := store.AbortOldUploads(t.Context(), "", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"unfinished", "uploads"} {
		if left := filesIn(t, filepath.Join(dir, "archive/.substorm", folder)); len(left) > 0 {
			t.Errorf("left over in %s: %q", folder, left)
		}
	}
	found := len(listed(t, store, "", ""))
	objectstore.Forgotten(store) // a process that starts now
	store = open(t, objectstore.Config{Endpoint: objectstore.FolderEndpoint(dir), Bucket: "archive"})
	found = max(found, len(listed(t, store, "", "")))
	after := testenv.CutPower(t, image)
	if n := all.missing(t, after, true); n > 0 {
		t.Errorf("of %d acknowledged objects %d are lost in a power cut", len(all.stored), n)
	}
	if kept := len(listed(t, inFolder(t, after), "", "")); kept < found {
		t.Errorf("%d objects were found, and after a power cut %d", found, kept)
	}
}
