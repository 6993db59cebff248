// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// crowded is a store whose objects and packs of a day are gone already: it counts what is deleted,
// and how much memory is held meanwhile.
type crowded struct {
	objectstore.Store

	mu      sync.Mutex
	asked   int
	deleted int
	packs   int
	most    uint64
}

func (s *crowded) measure() {
	if s.asked++; s.asked%10_000 != 0 {
		return
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	s.most = max(s.most, m.HeapAlloc)
}

func (s *crowded) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts objectstore.PutOptions) error {
	s.mu.Lock()
	s.asked += 999
	s.measure()
	s.mu.Unlock()
	return s.Store.Put(ctx, key, body, size, opts)
}

func (s *crowded) Delete(context.Context, string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleted++
	s.measure()
	return nil
}

func (s *crowded) Head(ctx context.Context, key string) (objectstore.Info, error) {
	if !strings.HasPrefix(key, wire.PacksPrefix(site)) {
		return s.Store.Head(ctx, key)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.packs++
	s.measure()
	return objectstore.Info{}, fmt.Errorf("%s: %w", key, objectstore.ErrNotFound)
}

// The memory that a day takes while it expires does not grow with its objects, nor with its packs. SUBSTORM_TEST_MANY is set for a large day.
func TestMemoryOfManyObjects(t *testing.T) {
	const perPack, bound = 2, 24 << 20
	objects := 120_000
	if os.Getenv("SUBSTORM_TEST_MANY") != "" {
		objects = 450_000
	}
	l := newLab(t)
	v, err := manifest.NewVersion(t.TempDir(), wire.ManifestHeader{Site: site, Instrument: camera, Day: day}, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Discard()
	rec := l.record(noon, "one of many")
	for i := range objects {
		rec.ReceivedAt = noon.Add(time.Duration(i) * time.Millisecond)
		rec.Digest[0], rec.Digest[1], rec.Digest[2] = byte(i), byte(i>>8), byte(i>>16)
		if i < objects/2 {
			rec.Key = wire.RawKey(site, camera, rec.ReceivedAt, rec.Digest)
			rec.ID = rec.Key
		} else {
			rec.Key, rec.Offset, rec.Length = wire.PackKey(site, noon, "gateway-0", "one", uint64(i/perPack)), int64(1+i%perPack*100), rec.Size
			rec.ID = wire.MemberID(rec.Key, rec.Offset)
		}
		if err := v.Add(rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.Store(t.Context(), l.Store, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	l.index()
	r := l.collector()
	store := &crowded{Store: l.Store.Store}
	l.Store.Store = store
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	l.pass(r, now)
	grown := int64(store.most) - int64(before.HeapAlloc)
	t.Logf("%d objects in %d packs: %d KiB", objects, store.packs, grown>>10)
	l.want("objects of their own that were deleted", store.deleted, objects/2)
	l.want("packs that were looked for", store.packs, objects/2/perPack)
	l.want("removals", l.waiting(r), 0)
	if grown > bound {
		t.Errorf("%d MiB are held for a day of %d objects", grown>>20, objects)
	}
}
