// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// counted counts what is asked of a store.
type counted struct {
	objectstore.Store
	gets, bytes atomic.Int64
}

func (c *counted) Get(ctx context.Context, key string, r objectstore.Range) (io.ReadCloser, objectstore.Info, error) {
	c.gets.Add(1)
	c.bytes.Add(r.Length)
	return c.Store.Get(ctx, key, r)
}

// Adjacent members of a pack are read by one request, in whatever order they are asked for; other
// bytes are not held; and damage of one fails that one only.
func TestFetch(t *testing.T) {
	store := &counted{Store: testenv.SharedBucket(t)}
	const key = "packs/thule/2026/11/21/1795305598987-gateway-0-one-1.tar"
	var pack bytes.Buffer
	var all []*fetched
	member := func(i, size int) wire.Record {
		body := bytes.Repeat([]byte{byte(i)}, size)
		r := wire.Record{ID: fmt.Sprint(i), Key: key, Offset: int64(pack.Len()), Length: int64(size), Size: int64(size), Digest: sha256.Sum256(body), State: wire.StateCurrent}
		pack.Write(body)
		return r
	}
	for i := range 100 {
		r := member(i, 1000)
		if i%10 == 3 { // the bytes in between belong to others
			pack.Write(make([]byte, 20_000))
		}
		all = append(all, &fetched{record: &r})
	}
	pack.Write(make([]byte, 2<<20))
	far := member(100, 5000)
	damaged := member(101, 5000)
	damaged.Digest[0]++
	behind := damaged
	behind.Offset += 1 << 20
	all = append(all, &fetched{record: &far}, &fetched{record: &damaged}, &fetched{record: &behind})
	if err := store.Put(t.Context(), key, bytes.NewReader(pack.Bytes()), int64(pack.Len()), objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	alone := wire.Record{ID: "alone", Key: "o/thule/camera/n/alone", Size: 5, Digest: sha256.Sum256([]byte("alone"))}
	if err := store.Put(t.Context(), alone.Key, strings.NewReader("alone"), 5, objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	all = append(all, &fetched{record: &alone})
	all[0], all[50] = all[50], all[0]
	fetch(t.Context(), store, all)
	for _, f := range all {
		data, err := f.wait(t.Context())
		wrong := f.record.ID == "101" // two of them
		if (err != nil) != wrong || wrong && !errors.Is(err, objectpath.ErrDamaged) || !wrong && sha256.Sum256(data) != f.record.Digest {
			t.Errorf("%s: %d bytes, %v", f.record.ID, len(data), err)
		}
		if cap(data) > 2*len(data) {
			t.Errorf("%s: it holds %d bytes", f.record.ID, cap(data))
		}
	}
	if gets := store.gets.Load(); gets > 6 { // the pack's beginning, its end, the damaged ones by themselves, and the object
		t.Errorf("%d requests", gets)
	}
}
