// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/ingest-gateway/intake/memory"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// enough lets machines that build something else at the same time keep up.
const enough = 3 * time.Minute

// The answers of the store are lost, one of each kind: every object is stored
// once, and nothing is left beside it.
func TestLostAnswers(t *testing.T) {
	l := newLab(t, enough)
	for i, lost := range []struct {
		request string
		size    int
	}{
		{"PUT /" + l.bucket + "/o/hub/camera/r/", 100_000},
		{"POST /" + l.bucket + "/staging/", PartSize + 1},               // begin
		{"partNumber=1&", PartSize + 1},                                 // a part
		{"<CompleteMultipartUpload", PartSize + 100},                    // complete staging
		{"X-Amz-Copy-Source: " + l.bucket + "/staging", 2*PartSize + 5}, // a copied part
	} {
		t.Run(lost.request, func(t *testing.T) {
			before, keys := l.wire.lost(), len(l.keys(t, "o/"))
			l.wire.loseAnswers(lost.request, 1)
			r := l.mustCommit(t, random(byte(i), lost.size))
			if l.wire.lost() != before+1 {
				t.Fatal("no answer was lost: the test tests nothing")
			}
			l.cleaning.Wait()
			now := l.keys(t, "o/")
			if len(now) != keys+1 {
				t.Errorf("the archive holds %v", now)
			}
			info, err := l.objects.Head(t.Context(), now[len(now)-1])
			if err != nil || info.Size != r.Bytes {
				t.Errorf("%+v, %v", info, err)
			}
			if staged := l.keys(t, "staging/"); len(staged) != 0 {
				t.Errorf("staging holds %v", staged)
			}
		})
	}
	if n := l.announced(t); n != 5 {
		t.Errorf("%d notices", n)
	}
}

// Equal bytes that come in the same millisecond are objects of their own: what
// is a duplicate is decided elsewhere.
func TestEqualObjectsAtOnce(t *testing.T) {
	l := newLab(t, enough)
	data := random(1, 1000)
	const objects = 40
	var wg sync.WaitGroup
	for range objects {
		wg.Go(func() {
			o, err := l.receive(t, data)
			if err == nil {
				_, _, err = o.Commit(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if keys := l.keys(t, "o/"); len(keys) != objects || l.announced(t) != objects {
		t.Errorf("%d objects, %d notices, want %d", len(keys), l.announced(t), objects)
	}
	if s := l.totals(); s.Objects != objects {
		t.Errorf("ledger %+v", s)
	}
}

// A store that stays away: the object is given up, and said so.
func TestStoreAway(t *testing.T) {
	l := newLabAlone(t, 500*time.Millisecond)
	small, err := l.receive(t, random(1, 1000))
	if err != nil {
		t.Fatal(err)
	}
	large, err := l.receive(t, random(2, PartSize+1))
	if err != nil {
		t.Fatal(err)
	}
	l.minio.Kill()
	for name, o := range map[string]*Object{"small": small, "large": large} {
		if _, _, err := o.Commit(t.Context()); CauseOf(err) != wire.CauseStoreUnavailable || !errors.Is(err, objectstore.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// While it is away a large object is refused before it has all arrived.
	o, err := l.receive(t, random(3, 4*PartSize))
	if CauseOf(err) != wire.CauseStoreUnavailable || !errors.Is(err, objectstore.ErrUnavailable) {
		t.Errorf("receiving while the store is away: %v", err)
	}
	o.Abort(CauseOf(err))
	if s := l.totals(); s.Unfinished[wire.CauseStoreUnavailable] != 3 || s.Objects != 0 {
		t.Errorf("ledger %+v", s)
	}
	l.cleaning.Wait()
	l.minio.Start()
	l.mustCommit(t, random(4, 1000))
	if keys := l.keys(t, "o/"); len(keys) != 1 {
		t.Errorf("the archive holds %v", keys)
	}
}

// Large objects, in memory that holds two first slabs: all are stored, each
// from two scratch files at most.
func TestLargeObjectsInLittleMemory(t *testing.T) {
	l := newLab(t, enough)
	var err error
	l.pool, err = memory.NewPool(memory.Config{Budget: 2 * memory.FirstSlab, ScratchDir: t.TempDir(), ScratchSize: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	l.cfg.Pool, l.cfg.Metrics = l.pool, prometheus.NewRegistry()
	l.Archive = New(l.cfg)
	const objects, size = 6, 2*PartSize + 12345
	var wg sync.WaitGroup
	for i := range objects {
		wg.Go(func() {
			data := random(byte(i), size)
			o, err := l.receive(t, data)
			if err == nil {
				var r wire.Receipt
				r, _, err = o.Commit(t.Context())
				if r.Digest != sha256.Sum256(data) {
					t.Errorf("object %d: receipt %+v", i, r)
				}
			}
			if err != nil {
				t.Errorf("object %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	for _, key := range l.keys(t, "o/") {
		info, err := l.objects.Head(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		body, _, err := l.objects.Get(t.Context(), key, objectstore.All)
		if err != nil {
			t.Fatal(err)
		}
		h := sha256.New()
		_, err = io.Copy(h, body)
		body.Close()
		n, nerr := wire.NoticeFromMetadata(key, info.Metadata)
		if err != nil || nerr != nil || wire.Digest(h.Sum(nil)) != n.Digest {
			t.Errorf("%s: %v, %v, notice %+v", key, err, nerr, n)
		}
	}
	if n := l.announced(t); n != objects {
		t.Errorf("%d notices", n)
	}
}

// slow is a store that takes its time.
type slow struct {
	objectstore.Store
	delay time.Duration
}

// Put implements objectstore.Store.
func (s slow) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts objectstore.PutOptions) error {
	time.Sleep(s.delay)
	return s.Store.Put(ctx, key, body, size, opts)
}

// A store that is slow, and not away, is waited for by all of a long queue,
// though the last ones wait far longer than the store may be away.
func TestLongQueue(t *testing.T) {
	const objects, delay, patience = 25, 200 * time.Millisecond, 3 * time.Second // 25 x 0.2 s > 3 s
	l := newLab(t, patience)
	l.cfg.Concurrency, l.cfg.Metrics, l.cfg.Objects = 1, prometheus.NewRegistry(), slow{l.cfg.Objects, delay}
	l.Archive = New(l.cfg)
	var wg sync.WaitGroup
	for i := range objects {
		o, err := l.receive(t, random(byte(i), 100_000))
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if _, _, err := o.Commit(t.Context()); err != nil {
				t.Errorf("object %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if keys := l.keys(t, "o/"); len(keys) != objects {
		t.Errorf("%d objects", len(keys))
	}
}

// JetStream stays away: no receipt, though the object is stored. The notice
// goes out once JetStream is back, and the ledger follows.
func TestStreamAway(t *testing.T) {
	l := newLab(t, 500*time.Millisecond)
	o, err := l.receive(t, random(1, 1000))
	if err != nil {
		t.Fatal(err)
	}
	l.nats.Kill()
	if _, _, err := o.Commit(t.Context()); CauseOf(err) != wire.CauseStreamUnavailable {
		t.Errorf("%v", err)
	}
	if keys := l.keys(t, "o/"); len(keys) != 1 {
		t.Errorf("stored: %v", keys)
	}
	if s := l.totals(); s.Objects != 0 {
		t.Errorf("received: %+v", s)
	}
	l.nats.Start()
	await(t, "the object is received", func() (bool, string) {
		s := l.totals()
		return s.Objects == 1, fmt.Sprintf("%+v", s)
	})
	if n := l.announced(t); n != 1 {
		t.Errorf("%d notices", n)
	}
	if s := l.totals(); s.Acknowledged != 0 || len(s.Unfinished) != 0 {
		t.Errorf("received: %+v", s)
	}
}

// A gateway that may wait no longer counts what it gave up as that.
func TestDraining(t *testing.T) {
	l := newLabAlone(t, enough)
	o, err := l.receive(t, random(1, 1000))
	if err != nil {
		t.Fatal(err)
	}
	l.minio.Pause()
	t.Cleanup(l.minio.Continue)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, _, err := o.Commit(ctx); CauseOf(err) != wire.CauseDraining {
		t.Errorf("%v", err)
	}
	if s := l.totals(); s.Unfinished[wire.CauseDraining] != 1 {
		t.Errorf("ledger %+v", s)
	}
}

// A clock that steps back a little yields the next nanosecond; one that is set right is followed.
func TestClockStepsBack(t *testing.T) {
	var c clock
	first := c.after(1_000_000)
	for _, now := range []int64{1_000_000, 999_999, 0, 1_000_001} {
		next := c.after(now)
		if !next.After(first) {
			t.Errorf("at %d the clock says %v, after %v", now, next, first)
		}
		first = next
	}
	if t2 := c.after(2_000_000); t2.UnixNano() != 2_000_000 {
		t.Errorf("at 2000000 the clock says %v", t2)
	}
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, now := range []time.Time{noon, noon.Add(time.Hour), noon.Add(time.Second), noon.Add(2 * time.Second)} {
		if got := c.after(now.UnixNano()); !got.Equal(now) {
			t.Errorf("at %v the clock says %v", now, got)
		}
	}
}

// A clock that has stepped back while the gateway was away is no news either,
// unless it was minutes ahead before.
func TestClockAcrossLives(t *testing.T) {
	file := filepath.Join(t.TempDir(), "clock")
	live := func(now time.Time) *clock {
		t.Helper()
		c := &clock{}
		if err := c.open(file, now, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.file.Close() })
		return c
	}
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	told := time.Time{}
	for _, now := range []time.Time{noon, noon.Add(time.Second / 3), noon.Add(-10 * time.Second), noon.Add(time.Second), noon.Add(-50 * time.Second)} {
		c := live(now)
		for range 3 {
			next := c.after(now.UnixNano())
			if !next.After(told) {
				t.Errorf("at %v the clock says %v, after %v", now, next, told)
			}
			told = next
		}
	}
	right := noon.Add(-24 * time.Hour)
	if got := live(right).after(right.UnixNano()); !got.Equal(right) {
		t.Errorf("set back by a day the clock says %v", got)
	}
	if err := os.WriteFile(file, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := live(right).after(right.UnixNano()); !got.Equal(right) {
		t.Errorf("with a broken file the clock says %v", got)
	}
}
