// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

var received = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// bytesOf are the bytes of the object with a number: they follow from the number.
func bytesOf(seed uint64, size int) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)}).Read(b)
	return b
}

func noticeOf(data []byte, at time.Time) wire.Notice {
	digest := wire.Digest(sha256.Sum256(data))
	key := wire.RawKey("hub", "camera", at, digest)
	return wire.Notice{Site: "hub", Instrument: "camera", Record: wire.Record{
		ID: key, Key: key, Size: int64(len(data)), Digest: digest, State: wire.StateCurrent,
		ReceivedAt: at, TimeSource: wire.TimeSourceReceived, Gateway: "north-0", Incarnation: "one",
	}}
}

func open(t testing.TB, cfg Config) *Spool {
	t.Helper()
	if cfg.Size == 0 {
		cfg.Size = 1 << 30
	}
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func closeSpool(t testing.TB, s *Spool) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func put(t testing.TB, s *Spool, data []byte, at time.Time) {
	t.Helper()
	if err := s.Object(noticeOf(data, at), bytes.NewReader(data), int64(len(data))); err != nil {
		t.Fatal(err)
	}
}

func next(t testing.TB, s *Spool) *Entry {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	e, err := s.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// content reads an entry, and fails if it is not what its notice says.
func content(t testing.TB, e *Entry) []byte {
	t.Helper()
	if err := e.Verify(); err != nil {
		t.Fatal(err)
	}
	r, err := e.Reader()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if sha256.Sum256(data) != e.Notice.Digest || int64(len(data)) != e.Notice.Size {
		t.Fatalf("%s: %d bytes that are not the object's", e.Notice.Key, len(data))
	}
	return data
}

func files(t testing.TB, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"+extension))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// Objects come back in their order, whole, over any number of segments and
// restarts; what is done never does, and its segments go.
func TestOrderAndRestart(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{Dir: dir, SegmentSize: 64 << 10}
	s := open(t, cfg)
	const objects = 200
	size := func(i int) int { return (i * 7919) % 9000 }
	for i := range objects {
		put(t, s, bytesOf(uint64(i), size(i)), received.Add(time.Duration(i)))
	}
	if st := s.Stats(); st.Objects != objects || !st.Oldest.Equal(received) {
		t.Errorf("%+v", st)
	}
	before := len(files(t, dir))
	for from := 0; from < objects; from += 50 {
		for i := from; i < from+50; i++ {
			e := next(t, s)
			if want := received.Add(time.Duration(i)); !e.Notice.ReceivedAt.Equal(want) {
				t.Fatalf("object %d: received at %v, want %v", i, e.Notice.ReceivedAt, want)
			}
			if !bytes.Equal(content(t, e), bytesOf(uint64(i), size(i))) {
				t.Fatalf("object %d has other bytes", i)
			}
			if i < from+49 { // the last one of each incarnation is not finished
				if err := s.Done(e); err != nil {
					t.Fatal(err)
				}
			}
		}
		closeSpool(t, s)
		s = open(t, cfg)
		e := next(t, s)
		if want := received.Add(time.Duration(from + 49)); !e.Notice.ReceivedAt.Equal(want) {
			t.Fatalf("after a restart the first is of %v, want %v", e.Notice.ReceivedAt, want)
		}
		if err := s.Done(e); err != nil {
			t.Fatal(err)
		}
	}
	if st := s.Stats(); st.Objects != 0 || st.Bytes != 0 || !st.Oldest.IsZero() || st.Quarantined != 0 {
		t.Errorf("%+v", st)
	}
	closeSpool(t, s)
	if left := files(t, dir); len(left) != 0 || before < 10 {
		t.Errorf("of %d segments these are left: %v", before, left)
	}
}

// Large objects are in parts, with others in between, and are one object again; given up, they
// leave nothing.
func TestParts(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{Dir: dir, SegmentSize: 100 << 10}
	s := open(t, cfg)
	data := bytesOf(1, 250_000)
	var parts, given []Place
	for at := 0; at < len(data); at += 60_000 {
		chunk := data[at:min(at+60_000, len(data))]
		for _, list := range []*[]Place{&parts, &given} {
			p, err := s.Part(bytes.NewReader(chunk), int64(len(chunk)))
			if err != nil {
				t.Fatal(err)
			}
			*list = append(*list, p)
		}
		put(t, s, bytesOf(uint64(at), 1000), received)
	}
	s.Drop(given)
	if err := s.Object(noticeOf(data, received), nil, 0, parts...); err != nil {
		t.Fatal(err)
	}
	for range 2 { // again after a restart
		for range 5 {
			e := next(t, s)
			content(t, e)
		}
		e := next(t, s)
		if !bytes.Equal(content(t, e), data) {
			t.Fatal("other bytes")
		}
		r, err := e.Reader()
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int64{0, 59_999, 60_000, 249_999, 120_001} {
			if _, err := r.Seek(at, io.SeekStart); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(r)
			if err != nil || !bytes.Equal(rest, data[at:]) {
				t.Fatalf("from %d: %d bytes, %v", at, len(rest), err)
			}
		}
		r.Close()
		closeSpool(t, s)
		s = open(t, cfg)
	}
	for range 6 {
		if err := s.Done(next(t, s)); err != nil {
			t.Fatal(err)
		}
	}
	closeSpool(t, s)
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// Many append, several take: each object is taken once.
func TestConcurrency(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir(), SegmentSize: 256 << 10})
	const writers, each = 16, 50
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				put(t, s, bytesOf(uint64(w*each+i), 3000), received)
			}
		})
	}
	var mu sync.Mutex
	seen := map[wire.Digest]int{}
	for range 4 {
		wg.Go(func() {
			for range writers * each / 4 {
				e := next(t, s)
				content(t, e)
				mu.Lock()
				seen[e.Notice.Digest]++
				mu.Unlock()
				if err := s.Done(e); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range writers * each {
		if n := seen[sha256.Sum256(bytesOf(uint64(i), 3000))]; n != 1 {
			t.Errorf("object %d was taken %d times", i, n)
		}
	}
	st := s.Stats()
	if st.Objects != 0 || st.Records != 2*writers*each {
		t.Errorf("%+v", st)
	}
	if st.Batches >= st.Records {
		t.Errorf("no two of %d records shared a sync", st.Records)
	}
}

// A full spool refuses, and takes again once something is done.
func TestFull(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir, Size: 100_000, SegmentSize: 20_000})
	n := 0
	var err error
	for ; err == nil; n++ {
		data := bytesOf(uint64(n), 5000)
		err = s.Object(noticeOf(data, received), bytes.NewReader(data), 5000)
	}
	if !errors.Is(err, ErrFull) || n < 10 {
		t.Fatalf("after %d objects: %v", n, err)
	}
	for range 8 {
		if err := s.Done(next(t, s)); err != nil {
			t.Fatal(err)
		}
	}
	put(t, s, bytesOf(1, 5000), received)
	closeSpool(t, s)
	total := int64(0)
	for _, path := range files(t, dir) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if total > 100_000+1000 { // what says that something is done may always be said
		t.Errorf("the files take %d bytes", total)
	}
}

// A body that cannot be read fails its own record and no other.
func TestBodyFails(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	broken := errors.New("broken")
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			data := bytesOf(uint64(i), 200_000)
			if i%3 != 0 {
				put(t, s, data, received)
				return
			}
			body := io.MultiReader(bytes.NewReader(data[:i*3000]), failing{broken})
			if err := s.Object(noticeOf(data, received), body, 200_000); !errors.Is(err, broken) {
				t.Errorf("object %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	for range 40 {
		e := next(t, s)
		content(t, e)
	}
	if st := s.Stats(); st.Objects != 40 || st.Quarantined != 0 {
		t.Errorf("%+v", st)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// A segment or record that a newer Substorm wrote is refused, not skipped.
func TestNewerFormat(t *testing.T) {
	for name, at := range map[string]int{"segment": 8, "record": segmentHead + 8} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			b := encodeSegmentHead(1, marker{1})
			b = goldenRecord(b, marker{1}, &record{kind: kindObject, sequence: 1}, nil)
			b[at] = Format + 1
			fixChecksums(b)
			if err := os.WriteFile(segmentPath(dir, 1), b, 0o640); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(Config{Dir: dir, Size: 1 << 20}); !errors.Is(err, wire.ErrNewerFormat) {
				t.Errorf("%v", err)
			}
		})
	}
}
