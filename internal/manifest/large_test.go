// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// A day whose identities do not fit into memory reads the same as one whose identities do, whatever was changed, marked, listed again and
// moved in it, compacted or not.
func TestLargeDayReadsTheSame(t *testing.T) {
	store := testenv.SharedBucket(t)
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		for _, key := range keysOf(t, store) {
			if err := store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		line := func() wire.Record {
			r := record(fmt.Sprint("object-", random.IntN(60)))
			r.Key = fmt.Sprint("pack-", random.IntN(3))
			r.State = []wire.State{wire.StateCurrent, wire.StateCurrent, wire.StateSuperseded, wire.StateRetracted, wire.StatePurged, wire.StateDuplicate}[random.IntN(6)]
			r.Reason = fmt.Sprint(random.Uint32())
			if random.IntN(5) == 0 {
				at := time.Now()
				r.State, r.RestoredAt = wire.StateCurrent, &at
			}
			return r
		}
		number := 1
		part := func() string {
			var records []wire.Record
			for range random.IntN(40) {
				records = append(records, line())
			}
			key := part(number)
			put(t, store, key, wire.ManifestHeader{}, records...)
			number++
			return key
		}
		read := func() (all []wire.Record) {
			for r, err := range manifest.Records(t.Context(), store, site, instrument, day) {
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, r)
			}
			return all
		}
		var replaces []string
		for range random.IntN(4) {
			replaces = append(replaces, part())
		}
		if seed%2 == 0 {
			put(t, store, version(1), wire.ManifestHeader{Replaces: replaces}, read()...)
		}
		for range 1 + random.IntN(3) {
			part()
		}
		want := read()
		for _, held := range []int{1, 7, 50} {
			for name, dir := range map[string]string{"scratch": t.TempDir(), "no scratch": "/nowhere"} {
				t.Run(fmt.Sprintf("seed %d, %d held, %s", seed, held, name), func(t *testing.T) {
					manifest.HoldAtMost(t, held)
					t.Setenv("TMPDIR", dir)
					if diff := cmp.Diff(want, read()); diff != "" {
						t.Errorf("(-all held +%d held):\n%s", held, diff)
					}
				})
			}
		}
	}
}

// counted is a store in memory that counts the bytes that are read of it.
type counted struct {
	objectstore.Store
	objects map[string][]byte
	read    atomic.Int64
}

func (s *counted) List(_ context.Context, prefix, _ string) iter.Seq2[objectstore.Info, error] {
	return func(yield func(objectstore.Info, error) bool) {
		for _, key := range slices.Sorted(maps.Keys(s.objects)) {
			if strings.HasPrefix(key, prefix) && !yield(objectstore.Info{Key: key, Size: int64(len(s.objects[key]))}, nil) {
				return
			}
		}
	}
}

func (s *counted) Get(_ context.Context, key string, _ objectstore.Range) (io.ReadCloser, objectstore.Info, error) {
	data := s.objects[key]
	s.read.Add(int64(len(data)))
	return io.NopCloser(bytes.NewReader(data)), objectstore.Info{Key: key, Size: int64(len(data))}, nil
}

// The amount that is read of a large day grows with its lines, not with the shares in
// which they are compared: each file is read for its header, for the comparison, and for
// the lines.
func TestLargeDayIsReadOnce(t *testing.T) {
	const files, perFile = 40, 500
	for _, compacted := range []bool{false, true} {
		t.Run(fmt.Sprintf("compacted %t", compacted), func(t *testing.T) {
			store, all := &counted{objects: map[string][]byte{}}, 0
			for n := range files {
				key, records := part(n+1), []wire.Record(nil)
				if n == 0 && compacted {
					key = version(1)
				}
				for i := range perFile {
					records = append(records, record(fmt.Sprint("object-", n/2, "-", i))) // each twice
				}
				data, err := wire.Manifest{Header: wire.ManifestHeader{Site: site, Instrument: instrument, Day: day}, Records: records}.Encode()
				if err != nil {
					t.Fatal(err)
				}
				store.objects[key] = data
				all += len(data)
			}
			manifest.HoldAtMost(t, perFile/5)
			manifest.KeepAtMost(t, 0)
			n := 0
			for _, err := range manifest.Records(t.Context(), store, site, instrument, day) {
				if err != nil {
					t.Fatal(err)
				}
				n++
			}
			if n != files*perFile/2 {
				t.Errorf("%d objects, want %d", n, files*perFile/2)
			}
			if read := store.read.Load(); read > int64(3*all+len(store.objects[version(1)])) {
				t.Errorf("%d bytes are read of a day of %d", read, all)
			}
		})
	}
}

func keysOf(t *testing.T, store objectstore.Store) (keys []string) {
	t.Helper()
	for info, err := range store.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	return keys
}
