// SPDX-License-Identifier: Apache-2.0

package store

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/internal/wire"
)

const packBelow = 64 << 10

func (l *lab) packing(t *testing.T) {
	t.Helper()
	var err error
	l.camera, err = intake.NewInstrument(wire.InstrumentEntry{
		Instrument: "camera", MaxObjectSize: 1 << 30, MaxConnections: 1, MediaType: "image/jpeg", PackBelow: packBelow,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// commitAll receives objects and commits them at once; it returns how many got a
// receipt.
func (l *lab) commitAll(t *testing.T, objects [][]byte) (receipts int) {
	t.Helper()
	var mu sync.Mutex
	var commits sync.WaitGroup
	for _, data := range objects {
		o, err := l.receive(t, data)
		if err != nil {
			o.Abort(CauseOf(err))
			continue
		}
		o.Whole(wire.CompletenessVerified)
		commits.Go(func() {
			r, _, err := o.Commit(t.Context())
			if err != nil {
				return
			}
			if want := (wire.Receipt{Digest: sha256.Sum256(data), Bytes: int64(len(data))}); r != want {
				t.Errorf("receipt %+v, want %+v", r, want)
			}
			mu.Lock()
			receipts++
			mu.Unlock()
		})
	}
	commits.Wait()
	return receipts
}

func smallObjects(n int) [][]byte {
	sizes := []int{1, 511, 512, 513, 1500, 5300, 32 << 10, packBelow}
	var all [][]byte
	for i := range n {
		all = append(all, append(random(byte(i), sizes[i%len(sizes)]-1), byte(i>>8)))
	}
	return all
}

// Small objects share packs, each is announced with its own place, and a pack is
// a tar like any other.
func TestPacks(t *testing.T) {
	l := newLab(t, enough)
	l.packing(t)
	objects := smallObjects(400)
	if n := l.commitAll(t, objects); n != len(objects) {
		t.Fatalf("%d receipts of %d objects", n, len(objects))
	}
	l.mustCommit(t, random(1, packBelow+1))
	sent := map[wire.Digest]int{sha256.Sum256(random(1, packBelow+1)): 1}
	for _, data := range objects {
		sent[sha256.Sum256(data)]++ // some are equal
	}
	if diff := cmp.Diff(sent, l.checkArchive(t)); diff != "" {
		t.Errorf("announced (-sent +announced):\n%s", diff)
	}
	packs, raw := l.keys(t, "packs/"), l.keys(t, "o/")
	if len(packs) > len(objects)/10 || len(raw) != 1 {
		t.Errorf("%d objects lie in %d packs, and %d by themselves", len(objects), len(packs), len(raw))
	}
	members := 0
	for _, key := range packs {
		archive := tar.NewReader(bytes.NewReader(l.bytesOf(t, wire.Record{Key: key})))
		for {
			head, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(archive)
			if err != nil {
				t.Fatal(err)
			}
			if want := wire.RawKey("hub", "camera", head.ModTime, sha256.Sum256(data)); head.Name != want || head.Uid != 0 {
				t.Errorf("member %q of owner %d, want %q", head.Name, head.Uid, want)
			}
			members++
		}
	}
	if members != len(objects) {
		t.Errorf("the packs have %d members, want %d", members, len(objects))
	}
	if got := l.totals(); got.Objects != uint64(len(objects)+1) || l.announced(t) != got.Objects {
		t.Errorf("received: %+v, %d announced", got, l.announced(t))
	}
}

// If the store is away, a pack fails for all its members, nothing is receipted, and packs
// that may have arrived are reported.
func TestPackRefused(t *testing.T) {
	l := newLab(t, time.Second)
	l.packing(t)
	l.mustCommit(t, random(1, 1000))
	l.wire.loseAnswers("PUT /"+l.bucket+"/packs/", 1000)
	objects := smallObjects(50)
	if n := l.commitAll(t, objects); n != 0 {
		t.Fatalf("%d receipts without an answer of the store", n)
	}
	if got := l.totals(); got.Objects != 1 || got.Unfinished[wire.CauseStoreUnavailable] != uint64(len(objects)) {
		t.Errorf("received: %+v", got)
	}
	if n := len(l.keys(t, "packs/")); n < 2 {
		t.Fatalf("%d packs: none arrived whose answer was lost", n)
	}
	l.wire.loseAnswers("", 0)
	ctx, cancel := testContext(t)
	defer cancel()
	l.Archive.cfg.JetStream = l.nats.JetStream(t)
	go l.reportFailedPacks(ctx)
	var reported []string
	await(t, "all packs but the announced one are reported", func() (bool, string) {
		reported = l.reportedPacks(t)
		unreported := slices.DeleteFunc(l.keys(t, "packs/"), func(pack string) bool { return slices.Contains(reported, pack) })
		return len(unreported) == 1, fmt.Sprint(unreported)
	})
	for _, pack := range reported { // as the archivist does
		if err := l.Archive.cfg.Objects.Delete(t.Context(), pack); err != nil {
			t.Fatal(err)
		}
	}
	if n := l.commitAll(t, objects); n != len(objects) {
		t.Errorf("%d receipts of %d", n, len(objects))
	}
	l.checkArchive(t)
}

// An answer that is lost is no reason to store a pack twice, or to refuse it.
func TestPackAnswerLost(t *testing.T) {
	l := newLab(t, enough)
	l.packing(t)
	l.wire.loseAnswers("PUT /"+l.bucket+"/packs/", 1)
	l.mustCommit(t, random(1, 1000))
	if l.wire.lost() == 0 {
		t.Error("no answer was lost")
	}
	if keys := l.keys(t, "packs/"); len(keys) != 1 {
		t.Errorf("packs %v", keys)
	}
	l.checkArchive(t)
}
