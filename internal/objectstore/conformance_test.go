// SPDX-License-Identifier: Apache-2.0

package objectstore_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// otherServers is what else TestConformance asks.
var otherServers = map[string]func(*testing.T) objectstore.Config{}

// TestConformance asks a server for everything that Store promises. It runs
// against MinIO, a folder, and against any other server that these name:
//
//	SUBSTORM_TEST_S3_ENDPOINT, SUBSTORM_TEST_S3_ACCESS_KEY_ID, SUBSTORM_TEST_S3_SECRET_ACCESS_KEY
func TestConformance(t *testing.T) {
	servers := map[string]func(*testing.T) objectstore.Config{
		"MinIO": func(t *testing.T) objectstore.Config {
			return testenv.MinIO(t, testenv.MinIOOptions{}).Config("conformance")
		},
		"MinIO over TLS": func(t *testing.T) objectstore.Config {
			return testenv.MinIO(t, testenv.MinIOOptions{TLS: true}).Config("conformance")
		},
	}
	maps.Copy(servers, otherServers)
	if endpoint := os.Getenv("SUBSTORM_TEST_S3_ENDPOINT"); endpoint != "" {
		servers[endpoint] = func(*testing.T) objectstore.Config {
			return objectstore.Config{Endpoint: endpoint, Bucket: fmt.Sprintf("conformance-%d", time.Now().UnixNano()),
				AccessKeyID:     os.Getenv("SUBSTORM_TEST_S3_ACCESS_KEY_ID"),
				SecretAccessKey: os.Getenv("SUBSTORM_TEST_S3_SECRET_ACCESS_KEY")}
		}
	}
	for name, config := range servers {
		t.Run(name, func(t *testing.T) {
			cfg := config(t)
			c := conformance{store: open(t, cfg), config: cfg}
			t.Run("bucket", c.bucket)
			t.Run("put", c.put)
			t.Run("create only", c.createOnly)
			t.Run("metadata", c.metadata)
			t.Run("range", c.ranges)
			t.Run("list", c.list)
			t.Run("delete", c.delete)
			t.Run("upload", c.upload)
			t.Run("old uploads", c.oldUploads)
			t.Run("copy", c.copies)
			t.Run("bad bodies", c.badBodies)
			if cfg.AccessKeyID != "" { // a folder has none
				t.Run("wrong credentials", c.wrongCredentials)
			}
			t.Run("canceled", c.canceled)
		})
	}
}

type conformance struct {
	store  objectstore.Store
	config objectstore.Config
}

func open(t *testing.T, cfg objectstore.Config) objectstore.Store {
	t.Helper()
	store, err := objectstore.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func (c conformance) bucket(t *testing.T) {
	ctx := t.Context()
	if err := c.store.CheckBucket(ctx); !errors.Is(err, objectstore.ErrNoBucket) {
		t.Fatalf("check of a missing bucket: %v", err)
	}
	if err := put(ctx, c.store, "x", []byte("x"), objectstore.PutOptions{}); !errors.Is(err, objectstore.ErrNoBucket) {
		t.Fatalf("put into a missing bucket: %v", err)
	}
	if u, err := c.store.NewUpload(ctx, "x", objectstore.PutOptions{}); !errors.Is(err, objectstore.ErrNoBucket) || u != nil {
		t.Fatalf("upload into a missing bucket: %v, %v", u, err)
	}
	for _, want := range []bool{true, false} {
		if created, err := c.store.EnsureBucket(ctx); err != nil || created != want {
			t.Fatalf("ensure bucket: %v, %v, want %v", created, err, want)
		}
	}
	if err := c.store.CheckBucket(ctx); err != nil {
		t.Fatal(err)
	}
}

func (c conformance) put(t *testing.T) {
	ctx := t.Context()
	for _, size := range []int{0, 1, 64 << 10, 5<<20 + 1} {
		body := random(t, size)
		key := fmt.Sprintf("put/%d", size)
		opts := objectstore.PutOptions{ContentType: "image/fits", Digest: sha256.Sum256(body)}
		if err := put(ctx, c.store, key, body, opts); err != nil {
			t.Fatal(err)
		}
		wantBytes(t, c.store, key, body)
		info, err := c.store.Head(ctx, key)
		if err != nil || info.Size != int64(size) || info.Key != key || info.ContentType != "image/fits" {
			t.Fatalf("head: %+v, %v", info, err)
		}
		if age := time.Since(info.ModifiedAt); age < -time.Hour || age > time.Hour {
			t.Errorf("stored %v ago", age)
		}
	}
	if err := put(ctx, c.store, "put/1", []byte("again"), objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	wantBytes(t, c.store, "put/1", []byte("again"))
	if _, err := c.store.Head(ctx, "put/none"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("head of nothing: %v", err)
	}
	if _, _, err := c.store.Get(ctx, "put/none", objectstore.All); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("get of nothing: %v", err)
	}
}

// If many writers write one key, one of them wins, and readers see its bytes.
func (c conformance) createOnly(t *testing.T) {
	ctx := t.Context()
	const writers = 8
	won := make(chan []byte, writers)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			body := bytes.Repeat([]byte{byte('a' + i)}, 100_000)
			err := put(ctx, c.store, "fence", body, objectstore.PutOptions{CreateOnly: true})
			// A server may say "busy" to two at once; then the key may still be free.
			for errors.Is(err, objectstore.ErrUnavailable) {
				err = put(ctx, c.store, "fence", body, objectstore.PutOptions{CreateOnly: true})
			}
			switch {
			case err == nil:
				won <- body
			case !errors.Is(err, objectstore.ErrExists):
				t.Errorf("writer %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	close(won)
	if len(won) != 1 {
		t.Fatalf("%d writers won", len(won))
	}
	wantBytes(t, c.store, "fence", <-won)
}

func (c conformance) metadata(t *testing.T) {
	ctx := t.Context()
	want := map[string]string{
		"Substorm-Sha256":      "0123",
		"Substorm-Received-At": "2026-11-21T03:04:05.000000006Z",
		"Substorm-Record":      `{"name":"nordlys over Tromsø ★.fits","size":3}`,
		"Substorm-Spaces":      "  a  b ",
		"Substorm-Looks-Like":  "=?UTF-8?b?no?=",
	}
	if err := put(ctx, c.store, "metadata", []byte("x"), objectstore.PutOptions{Metadata: want}); err != nil {
		t.Fatal(err)
	}
	info, err := c.store.Head(ctx, "metadata")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, info.Metadata); diff != "" {
		t.Errorf("head's metadata (-want +got):\n%s", diff)
	}
	body, got, err := c.store.Get(ctx, "metadata", objectstore.All)
	if err != nil {
		t.Fatal(err)
	}
	body.Close()
	bare := objectstore.Info{Key: info.Key, Size: 1, ModifiedAt: info.ModifiedAt}
	if diff := cmp.Diff(bare, got); diff != "" {
		t.Errorf("get tells (-want +got):\n%s", diff)
	}
}

func (c conformance) ranges(t *testing.T) {
	ctx := t.Context()
	body := random(t, 100_000)
	if err := put(ctx, c.store, "range", body, objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, r := range []objectstore.Range{{}, {0, 1}, {1, 1}, {99_999, 1}, {10, 500}, {10, 0}, {50_000, 1 << 20}} {
		want := body[r.Offset:]
		if r.Length > 0 && r.Length < int64(len(want)) {
			want = want[:r.Length]
		}
		got, err := get(ctx, c.store, "range", r)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("range %+v: %d bytes, %v, want %d", r, len(got), err, len(want))
		}
	}
	if got, err := get(ctx, c.store, "range", objectstore.Range{Offset: 100_000, Length: 5}); !errors.Is(err, objectstore.ErrRange) {
		t.Errorf("a range behind the end gives %d bytes, %v", len(got), err)
	}
}

func (c conformance) list(t *testing.T) {
	ctx := t.Context()
	var want []string
	for i := range 1234 { // more than a page
		want = append(want, fmt.Sprintf("list/day/%04d", i))
	}
	want = append(want, "list/day/+ ä&", "list/other/x", "list/z")
	work := make(chan string)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for key := range work {
				if err := put(ctx, c.store, key, []byte("abc"), objectstore.PutOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, key := range want {
		work <- key
	}
	close(work)
	wg.Wait()
	slices.Sort(want)
	for _, after := range []string{"", "list/day/0999", "list/day/0999x", "list/z"} {
		var rest []string
		for _, key := range want {
			if key > after {
				rest = append(rest, key)
			}
		}
		if diff := cmp.Diff(rest, keys(t, c.store, "list/", after)); diff != "" {
			t.Errorf("after %q (-want +got):\n%s", after, diff)
		}
	}
	if got := keys(t, c.store, "list/nothing/", ""); len(got) != 0 {
		t.Errorf("nothing lists %v", got)
	}
	var folders []string
	for name, err := range c.store.Folders(ctx, "list/") {
		if err != nil {
			t.Fatal(err)
		}
		folders = append(folders, name)
	}
	if diff := cmp.Diff([]string{"day", "other"}, folders); diff != "" {
		t.Errorf("folders (-want +got):\n%s", diff)
	}
}

func (c conformance) delete(t *testing.T) {
	ctx := t.Context()
	if err := put(ctx, c.store, "gone", []byte("x"), objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.store.Delete(ctx, "gone"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.store.Head(ctx, "gone"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("after delete: %v", err)
	}
}

func (c conformance) badBodies(t *testing.T) {
	ctx := t.Context()
	wrong := objectstore.PutOptions{Digest: sha256.Sum256([]byte("other"))}
	if err := put(ctx, c.store, "bad", []byte("these"), wrong); !errors.Is(err, objectstore.ErrDigest) {
		t.Errorf("bytes that are not the digest's: %v", err)
	}
	short := bytes.NewReader([]byte("short"))
	if err := c.store.Put(ctx, "bad", short, 6, objectstore.PutOptions{Digest: wire.Digest{1}}); err == nil {
		t.Error("a body that ends early was stored")
	}
	if _, err := c.store.Head(ctx, "bad"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("a bad body left an object: %v", err)
	}
}

func (c conformance) wrongCredentials(t *testing.T) {
	for _, change := range []func(*objectstore.Config){
		func(cfg *objectstore.Config) { cfg.SecretAccessKey = "not-this-one" },
		func(cfg *objectstore.Config) { cfg.AccessKeyID = "nobody" },
	} {
		cfg := c.config
		change(&cfg)
		store := open(t, cfg)
		if err := put(t.Context(), store, "no", []byte("x"), objectstore.PutOptions{}); !errors.Is(err, objectstore.ErrAccessDenied) {
			t.Errorf("put: %v", err)
		}
		if err := store.CheckBucket(t.Context()); !errors.Is(err, objectstore.ErrAccessDenied) {
			t.Errorf("check: %v", err)
		}
	}
}

func (c conformance) canceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := put(ctx, c.store, "no", []byte("x"), objectstore.PutOptions{})
	if !errors.Is(err, context.Canceled) || errors.Is(err, objectstore.ErrUnavailable) {
		t.Errorf("put: %v", err)
	}
	if err := c.store.CheckBucket(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("check: %v", err)
	}
	// An end without an error would say that there is nothing (more).
	err = nil
	for _, err = range c.store.List(ctx, "list/", "") {
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("list: %v", err)
	}
	for _, err = range c.store.Folders(ctx, "list/") {
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("folders: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	listed := 0
	for _, err = range c.store.List(ctx, "list/", "") {
		if listed++; listed == 10 {
			cancel()
		}
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("list, canceled on its way: %v", err)
	}
	if _, err := c.store.AbortOldUploads(ctx, "list/", time.Now()); !errors.Is(err, context.Canceled) {
		t.Errorf("abort old uploads: %v", err)
	}
}
