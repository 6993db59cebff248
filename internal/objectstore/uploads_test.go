// SPDX-License-Identifier: Apache-2.0

package objectstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

func (c conformance) upload(t *testing.T) {
	ctx := t.Context()
	body := random(t, 2*objectstore.MinPart+17)
	for _, createOnly := range []bool{true, false} {
		u, err := c.store.NewUpload(ctx, "upload", objectstore.PutOptions{
			ContentType: "image/fits", Metadata: map[string]string{"Substorm-Format": "1"}, CreateOnly: createOnly})
		if err != nil {
			t.Fatal(err)
		}
		sendParts(t, u, body)
		if createOnly {
			if _, err := c.store.Head(ctx, "upload"); !errors.Is(err, objectstore.ErrNotFound) {
				t.Errorf("before it is complete: %v", err)
			}
		}
		if err := u.Complete(ctx); err != nil {
			t.Fatal(err)
		}
		wantBytes(t, c.store, "upload", body)
	}
	info, err := c.store.Head(ctx, "upload")
	if err != nil || info.ContentType != "image/fits" || info.Metadata["Substorm-Format"] != "1" {
		t.Errorf("head: %+v, %v", info, err)
	}
	u, err := c.store.NewUpload(ctx, "upload", objectstore.PutOptions{CreateOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	sendParts(t, u, body[:100])
	if err := u.Complete(ctx); !errors.Is(err, objectstore.ErrExists) {
		t.Errorf("completed over an object: %v", err)
	}
	for range 2 {
		if err := u.Abort(ctx); err != nil {
			t.Error(err)
		}
	}
	wantBytes(t, c.store, "upload", body)
	if u, err = c.store.NewUpload(ctx, "aborted", objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	sendParts(t, u, body[:100])
	other := wire.Digest{1}
	if err := u.Part(ctx, 1, bytes.NewReader(body[:17]), 17, other); err == nil {
		t.Error("a part was taken whose bytes have another digest")
	}
	if err := u.Abort(ctx); err != nil {
		t.Error(err)
	}
	if err := u.Complete(ctx); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("completed after abort: %v", err)
	}
	if _, err := c.store.Head(ctx, "aborted"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("head of an aborted upload: %v", err)
	}
}

func sendParts(t *testing.T, u objectstore.Upload, body []byte) {
	t.Helper()
	var wg sync.WaitGroup
	for number := 1; len(body) > 0; number++ {
		part := body[:min(objectstore.MinPart, len(body))]
		body = body[len(part):]
		wg.Go(func() {
			if err := u.Part(t.Context(), number, bytes.NewReader(part), int64(len(part)), wire.Digest{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func (c conformance) oldUploads(t *testing.T) {
	ctx := t.Context()
	before := time.Now().Add(-time.Hour)
	for i := range 3 {
		u, err := c.store.NewUpload(ctx, fmt.Sprintf("staging/site/%d", i), objectstore.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		sendParts(t, u, []byte("part"))
	}
	later := time.Now().Add(time.Hour)
	for _, prefix := range []string{"staging/site/1", "staging/site/"} {
		if n, err := c.store.AbortOldUploads(ctx, prefix, before); err != nil || n != 0 {
			t.Errorf("aborted %d under %s of those begun an hour ago, %v", n, prefix, err)
		}
	}
	for _, want := range []int{1, 0} {
		if n, err := c.store.AbortOldUploads(ctx, "staging/site/1", later); err != nil || n != want {
			t.Errorf("aborted %d of one key, %v, want %d", n, err, want)
		}
	}
	n, err := c.store.AbortOldUploads(ctx, "staging/site/", later)
	switch {
	case err != nil || n != 2 && n != 0:
		t.Errorf("aborted %d of two keys, %v", n, err)
	case n == 0:
		t.Log("this server shows uploads by their whole key only: it must remove old ones itself")
	}
}

func (c conformance) copies(t *testing.T) {
	ctx := t.Context()
	body := random(t, 70_000)
	if err := put(ctx, c.store, "copy/from ä", body, objectstore.PutOptions{Metadata: map[string]string{"Old": "1"}}); err != nil {
		t.Fatal(err)
	}
	opts := objectstore.PutOptions{ContentType: "image/fits", Metadata: map[string]string{"New": "2"}, CreateOnly: true}
	if err := c.store.Copy(ctx, "copy/from ä", "copy/to", opts); err != nil {
		t.Fatal(err)
	}
	wantBytes(t, c.store, "copy/to", body)
	info, err := c.store.Head(ctx, "copy/to")
	if err != nil || info.ContentType != "image/fits" {
		t.Errorf("head: %+v, %v", info, err)
	}
	if diff := cmp.Diff(map[string]string{"New": "2"}, info.Metadata); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	if err := c.store.Copy(ctx, "copy/from ä", "copy/to", opts); !errors.Is(err, objectstore.ErrExists) {
		t.Errorf("create-only copy onto an object: %v", err)
	}
	if err := c.store.Copy(ctx, "copy/none", "copy/to2", opts); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("copy of nothing: %v", err)
	}
	if n, err := c.store.AbortOldUploads(ctx, "copy/", time.Now().Add(time.Hour)); err != nil || n != 0 {
		t.Errorf("copies left %d uploads, %v", n, err)
	}
}
