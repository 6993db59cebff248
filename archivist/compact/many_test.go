// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/archivist/deletion"
	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/manifest/manifesttest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/pack"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// manyPacks have perPack members each. Every second of them is still named; the members of the
	// others are listed in new packs, each with the members of movedTo packs.
	manyPacks, perPack, movedTo = 80_000, 3, 1000
	// One of duplicates holds duplicates, one of purged what was purged, and nothing lists
	// the members of lastCopy.
	duplicates, purged, lastCopy = 100, 101, 77_777
)

// many is a store in memory with a day of many packs, which are made when they are read.
type many struct {
	objectstore.Store
	mu    sync.Mutex
	files map[string][]byte
	gone  []bool // by the pack's number

	packs, manifests, heads int // requests
	most                    uint64
}

// measure notes how much is held.
func (s *many) measure() {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	s.most = max(s.most, m.HeapAlloc)
}

// pack returns the bytes of a pack, and its members. All packs have one size.
func (s *many) pack(number int) ([]byte, []wire.Notice) {
	var out bytes.Buffer
	var members []wire.Notice
	w := pack.NewWriter(wire.PackKey(site, noon, "gateway-0", "one", uint64(number)), &out)
	for i := range perPack {
		body := fmt.Sprintf("object %d of %06d", i, number)
		n, err := w.Add((&lab{}).notice(object{"sonde", noon, body}), strings.NewReader(body))
		if err != nil {
			panic(err)
		}
		members = append(members, n)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes(), members
}

func (s *many) List(_ context.Context, prefix, _ string) iter.Seq2[objectstore.Info, error] {
	return func(yield func(objectstore.Info, error) bool) {
		for key, data := range s.files {
			if strings.HasPrefix(key, prefix) && !yield(objectstore.Info{Key: key, Size: int64(len(data))}, nil) {
				return
			}
		}
		pack, _ := s.pack(1)
		for number := 1; prefix == wire.PackPrefix(site, day) && number <= manyPacks; number++ {
			if number%(maxPacks/2) == 0 {
				s.measure()
			}
			key := wire.PackKey(site, noon, "gateway-0", "one", uint64(number))
			if !yield(objectstore.Info{Key: key, Size: int64(len(pack)), ModifiedAt: noon}, nil) {
				return
			}
		}
	}
}

func (s *many) Get(_ context.Context, key string, r objectstore.Range) (io.ReadCloser, objectstore.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, known := s.files[key]
	switch file, err := wire.ParsePackKey(key); {
	case err == nil && !file.Compacted():
		s.packs++
		data, _ = s.pack(int(file.Number))
	case !known:
		return nil, objectstore.Info{}, fmt.Errorf("%s: %w", key, objectstore.ErrNotFound)
	default:
		s.manifests++
	}
	info := objectstore.Info{Key: key, Size: int64(len(data))}
	if r.Length > 0 {
		data = data[min(r.Offset, info.Size):min(r.Offset+r.Length, info.Size)]
	}
	return io.NopCloser(bytes.NewReader(data)), info, nil
}

// Head knows what is named, and all new packs.
func (s *many) Head(_ context.Context, key string) (objectstore.Info, error) {
	if s.heads++; s.heads%10 == 0 {
		s.measure()
	}
	pack, _ := s.pack(1)
	return objectstore.Info{Key: key, Size: int64(len(pack)), ModifiedAt: noon}, nil
}

func (s *many) Put(_ context.Context, key string, body io.ReadSeeker, _ int64, _ objectstore.PutOptions) error {
	s.measure()
	if _, err := wire.ParseManifestKey(key); err != nil {
		return nil // what is to be deleted
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return err
	}
	data, err := io.ReadAll(body)
	s.files[key] = data
	return err
}

func (s *many) Delete(_ context.Context, key string) error {
	file, err := wire.ParsePackKey(key)
	if err == nil {
		s.gone[file.Number] = true
	}
	return err
}

// list lists the members in one version of the day.
func (s *many) list(t *testing.T) {
	t.Helper()
	v, err := manifest.NewVersion(t.TempDir(), wire.ManifestHeader{Site: site, Instrument: "sonde", Day: day}, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Discard()
	_, originals := s.pack(2)
	for number := 1; number <= manyPacks; number++ {
		if number == lastCopy {
			continue
		}
		_, members := s.pack(number)
		for _, n := range members {
			switch {
			case number%2 == 0:
			case number%duplicates == 1:
				n.State, n.DuplicateOf, n.Size, n.Digest = wire.StateDuplicate, originals[0].ID, originals[0].Size, originals[0].Digest
			case number%purged == 1:
				n.State, n.PurgedAt = wire.StatePurged, &now
			default:
				n.Key = wire.PackKey(site, noon, wire.ArchivistWriter, "two", uint64(1+number/movedTo))
			}
			if err := v.Add(n.Record); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := v.Store(t.Context(), s, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
}

// A day of many packs, every second of which is still named, is collected in bounded memory, and
// its manifests are read only as often as its packs and the members that go require.
func TestManyPacksWithMembers(t *testing.T) {
	js := testenv.NATS(t, testenv.NATSOptions{}).JetStream(t)
	testenv.CreateSite(t, js, site)
	s := &many{files: map[string][]byte{}, gone: make([]bool, manyPacks+1)}
	s.list(t)
	for _, err := range manifest.Records(t.Context(), s, site, "sonde", day) {
		if err != nil {
			t.Fatal(err)
		}
	}
	perLook := s.manifests
	s.most, s.manifests = 0, 0
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	held := &manifesttest.Store{}
	held.KillAfter(-1)
	lease, log := manifesttest.Lease{Store: held}, slog.New(slog.DiscardHandler)
	c := New(Config{
		Base:    holder.Base{Site: site, Store: s, JetStream: js, Lease: lease, Log: log},
		Metrics: NewMetrics(prometheus.NewRegistry()), Deleter: deletion.New(deletion.Config{Base: holder.Base{Site: site, Store: s, Lease: lease, Log: log}, Metrics: deletion.NewMetrics(prometheus.NewRegistry())}),
	})
	if done, err := c.collect(t.Context(), day, []string{"sonde"}, now); done || err != nil {
		t.Fatal(done, err) // an object was announced, which has to be listed
	}
	for number := 1; number <= manyPacks; number++ {
		if want := number%2 == 1 && number != lastCopy; s.gone[number] != want {
			t.Fatalf("pack %d: gone %t, want %t", number, s.gone[number], want)
		}
	}
	// Each look for members has another one for the originals of duplicates.
	const goes = manyPacks / 2
	forMembers := (goes*perPack + maxDoomed - 1) / maxDoomed
	looks := (manyPacks+maxPacks-1)/maxPacks + 2*forMembers
	grown := int64(s.most) - int64(before.HeapAlloc)
	t.Logf("%d packs: %d KiB, %d reads of manifests, %d of packs, %d heads", manyPacks, grown>>10, s.manifests, s.packs, s.heads)
	if s.manifests > perLook*looks {
		t.Errorf("%d reads of manifests, %d suffice", s.manifests, perLook*looks)
	}
	if s.packs > goes+10 {
		t.Errorf("%d reads of packs, of which %d go", s.packs, goes)
	}
	if most := forMembers * (3 + manyPacks/movedTo); s.heads > most {
		t.Errorf("the store was asked for %d keys, want at most %d", s.heads, most)
	}
	if grown > 35<<20 {
		t.Errorf("%d MiB are held for a day of %d packs", grown>>20, manyPacks)
	}
}
