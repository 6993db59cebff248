// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/e2e/parts"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// A day of which no set of its identities fits into memory reads as one of which it does,
// whatever was changed, withdrawn, listed again and moved in it, compacted or not.
func TestLargeDayReadsTheSame(t *testing.T) {
	store := parts.MinIO(t, parts.MinIOOptions{}).Bucket(t, "archive")
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
			r.State = []wire.State{wire.StateCurrent, wire.StateCurrent, wire.StateSuperseded, wire.StateRetracted, wire.StatePurged, wire.StateWithdrawn}[random.IntN(6)]
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
			t.Run(fmt.Sprintf("seed %d, %d held", seed, held), func(t *testing.T) {
				manifest.HoldAtMost(t, held)
				if diff := cmp.Diff(want, read()); diff != "" {
					t.Errorf("(-all held +%d held):\n%s", held, diff)
				}
			})
		}
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
