// SPDX-License-Identifier: Apache-2.0

package objectstore_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"testing"

	"github.com/substorm/substorm/internal/objectstore"
)

func put(ctx context.Context, store objectstore.Store, key string, body []byte, opts objectstore.PutOptions) error {
	return store.Put(ctx, key, bytes.NewReader(body), int64(len(body)), opts)
}

func get(ctx context.Context, store objectstore.Store, key string, r objectstore.Range) ([]byte, error) {
	body, _, err := store.Get(ctx, key, r)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}

func keys(t *testing.T, store objectstore.Store, prefix, after string) []string {
	t.Helper()
	var found []string
	for info, err := range store.List(t.Context(), prefix, after) {
		if err != nil {
			t.Fatal(err)
		}
		if info.Size != 3 || info.ModifiedAt.IsZero() {
			t.Errorf("listed %+v", info)
		}
		found = append(found, info.Key)
	}
	return found
}

func wantBytes(t *testing.T, store objectstore.Store, key string, want []byte) {
	t.Helper()
	got, err := get(t.Context(), store, key, objectstore.All)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s holds %d bytes, %v, want %d", key, len(got), err, len(want))
	}
}

func random(t *testing.T, size int) []byte {
	t.Helper()
	b := make([]byte, size)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return b
}
