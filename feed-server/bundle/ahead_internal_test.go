// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// counting counts the requests to a store.
type counting struct {
	objectstore.Store
	gets atomic.Int64
}

func (c *counting) Get(ctx context.Context, key string, part objectstore.Range) (io.ReadCloser, objectstore.Info, error) {
	c.gets.Add(1)
	return c.Store.Get(ctx, key, part)
}

// Adjacent members of a pack are read by one request. If one of them is damaged, only that one is
// not given.
func TestMembersAreReadTogether(t *testing.T) {
	t.Parallel()
	store := &counting{Store: testenv.SharedBucket(t)}
	var pack bytes.Buffer
	var all []chosen
	for i := range 100 {
		body := bytes.Repeat([]byte{byte(i)}, 1000)
		pack.WriteString("between")
		all = append(all, chosen{send: i%50 != 7, path: fmt.Sprint(i), record: &wire.Record{
			ID: fmt.Sprint(i), Key: "pack.tar", Offset: int64(pack.Len()), Length: 1000, Size: 1000, Digest: sha256.Sum256(body)}})
		pack.Write(body)
	}
	all[60].record.Digest[0]++
	if err := store.Put(t.Context(), "pack.tar", bytes.NewReader(pack.Bytes()), int64(pack.Len()), objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	r := newReader(t.Context(), store)
	go r.readAll(all)
	var got, damaged int
	for o := range r.objects {
		data, err := o.wait(t.Context())
		switch {
		case err == nil && bytes.Equal(data, bytes.Repeat([]byte{data[0]}, 1000)) && fmt.Sprint(data[0]) == o.path:
			got++
			o.release()
		case isDamaged(err) && o.path == "60":
			damaged++
		default:
			t.Errorf("%s: %d bytes, %v", o.path, len(data), err)
		}
	}
	if gets := store.gets.Load(); got != 97 || damaged != 1 || gets != 3 { // two are not sent, and part the rest
		t.Errorf("%d objects, %d damaged, %d requests", got, damaged, gets)
	}
	if !r.space.TryAcquire(aheadBytes) {
		t.Error("not all space was given back")
	}
}
