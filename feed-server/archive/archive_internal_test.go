// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// The objects that are held never take more memory than the limit, whichever objects clients
// ask for, and whichever clients go away.
func TestHotMemory(t *testing.T) {
	t.Parallel()
	store := testenv.SharedBucket(t)
	const limit = 10_000
	h := newHot(store, limit, prometheus.NewRegistry())
	var all []wire.Record
	for i := range 20 {
		body := strings.Repeat(fmt.Sprint(i%10), 500+100*i)
		r := wire.Record{ID: fmt.Sprint("o/", i), Key: fmt.Sprint("o/", i), Size: int64(len(body)), Digest: sha256.Sum256([]byte(body))}
		if err := store.Put(t.Context(), r.Key, strings.NewReader(body), r.Size, objectstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	all[7].Digest[0]++ // damaged
	var askers sync.WaitGroup
	for n := range 8 {
		askers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 1))
			for range 200 {
				r := &all[random.IntN(len(all))]
				ctx, cancel := context.WithCancel(t.Context())
				if random.IntN(4) == 0 {
					go cancel()
				}
				o, err := h.get(ctx, r)
				cancel()
				switch {
				case err == nil:
					if int64(len(o.data)) != r.Size || wire.Digest(sha256.Sum256(o.data)) != r.Digest {
						t.Errorf("%s: other bytes", r.ID)
					}
					h.release(o)
				case errors.Is(err, errNoSpace), errors.Is(err, context.Canceled), r == &all[7] && errors.Is(err, objectpath.ErrDamaged):
				default:
					t.Errorf("%s: %v", r.ID, err)
				}
				h.mu.Lock()
				if h.used > limit {
					t.Errorf("%d bytes are held", h.used)
				}
				h.mu.Unlock()
			}
		})
	}
	askers.Wait()
	var used, held int64
	var idle, count, loading int
	for range testenv.Attempts() { // loads that no request waits for end as well
		h.mu.Lock()
		held, idle = 0, h.once.Len()+h.again.Len()
		for _, o := range h.held {
			held += int64(len(o.data))
		}
		used, count, loading = h.used, len(h.held), len(h.loading)
		h.mu.Unlock()
		if loading == 0 && held == used && idle == count {
			return
		}
	}
	t.Fatalf("%d bytes are counted, %d held, %d of %d objects idle, %d on their way", used, held, idle, count, loading)
}

// Objects that a robot reads once do not displace those that people ask for.
func TestHotStays(t *testing.T) {
	t.Parallel()
	store := testenv.SharedBucket(t)
	h := newHot(store, 10_000, prometheus.NewRegistry())
	ask := func(name string) {
		t.Helper()
		body := strings.Repeat(name, 1000/len(name))
		r := wire.Record{ID: name, Key: name, Size: int64(len(body)), Digest: sha256.Sum256([]byte(body))}
		if err := store.Put(t.Context(), r.Key, strings.NewReader(body), r.Size, objectstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		o, err := h.get(t.Context(), &r)
		if err != nil {
			t.Fatal(err)
		}
		h.release(o)
	}
	holds := func(name string) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		body := strings.Repeat(name, 1000/len(name))
		return h.held[sha256.Sum256([]byte(body))] != nil
	}
	for range 2 {
		ask("hot1")
		ask("hot2")
	}
	for i := range 50 {
		ask(fmt.Sprintf("old-%04d", i))
	}
	if !holds("hot1") || !holds("hot2") {
		t.Error("what is hot was displaced")
	}
	for i := range 10 { // the hot of the next day
		for range 2 {
			ask(fmt.Sprintf("new-%04d", i))
		}
	}
	if holds("hot1") || !holds("new-0009") {
		t.Error("what was hot stays for ever")
	}
	for range 2 { // what is hot together comes in though all that is held was asked for again
		ask("pair-1")
		ask("pair-2")
	}
	for i := range 50 {
		ask(fmt.Sprintf("old-%04d", i))
	}
	if !holds("pair-1") || !holds("pair-2") {
		t.Error("what is hot now never came in")
	}
}

// The last bytes go out only when the source has ended as it should.
func TestHeldBack(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for _, size := range []int{0, 1, chunk - 1, chunk, chunk + 1, 3*chunk - 1, 3 * chunk, 3*chunk + 7} {
		body := strings.Repeat("x", size)
		for name, c := range map[string]struct {
			source io.Reader
			whole  bool
		}{
			"whole": {strings.NewReader(body), true}, "in pieces": {iotest.OneByteReader(strings.NewReader(body)), true}, "with the error": {iotest.DataErrReader(strings.NewReader(body)), true},
			"longer": {strings.NewReader(body + "x"), false}, "fails at the end": {io.MultiReader(strings.NewReader(body), iotest.ErrReader(failed)), false},
			"fails with the end": {iotest.DataErrReader(io.MultiReader(strings.NewReader(body), iotest.ErrReader(failed))), false},
			"shorter":            {strings.NewReader(body[:max(0, size-1)]), size == 0},
		} {
			sent := 0
			err := heldBack(func(p []byte) error { sent += len(p); return nil }, c.source, int64(size))
			if (err == nil) != c.whole || (sent == size) != (c.whole || size == 0) {
				t.Errorf("%d bytes, %s: %d were sent, %v", size, name, sent, err)
			}
		}
	}
}

// A path is refused, or means one target, whose own URL means it too.
func FuzzTarget(f *testing.F) {
	for _, seed := range []string{"", "allsky-1", "allsky-1/", "allsky-1/2015/03/17/a%20b.jpg", "a/../b", "a/%2e%2e/b", "a%2Fb/c", "a/b%2Fc", "a/%00", "a//b", "/", "//", "a/b/", "a/12:00", "a/sp%20/", "a/sp%20", "a/%zz", "a/æ"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		got, err := parseTarget(Root + path)
		if err != nil {
			return
		}
		if got.path != "" && !got.directory && wire.CheckName(got.path) != nil || strings.Contains(got.instrument, "/") {
			t.Fatalf("%q means %+v", path, got)
		}
		if got.path == "" && !got.directory {
			return // its URL is where it is redirected to
		}
		again, err := parseTarget(got.url())
		if err != nil || again != got {
			t.Fatalf("%q means %+v, whose URL %q means %+v, %v", path, got, got.url(), again, err)
		}
		if u, err := url.Parse(got.url()); err != nil || u.RawQuery != "" || u.Fragment != "" {
			t.Fatalf("%q: URL %q, %v", path, got.url(), err)
		}
		if got.path == "" {
			return
		}
		base, err := url.Parse("http://host" + Root)
		if err != nil {
			t.Fatal(err)
		}
		name := got.path[strings.LastIndexByte(got.path, '/')+1:]
		if ref, err := base.Parse(escape(name)); err != nil || ref.Path != Root+name {
			t.Fatalf("a link to %q leads to %v, %v", name, ref, err)
		}
	})
}

// A range covers the object or a part of it.
func FuzzRange(f *testing.F) {
	for _, seed := range []string{"", "bytes=0-", "bytes=-1", "bytes=1-2", "bytes=1-2,3-4", "bytes=99999999999999999999-", "bytes=-0", "bytes=2-1", "items=1-2", "bytes= 1-2", "Bytes=1-2"} {
		f.Add(seed, int64(100))
	}
	f.Fuzz(func(t *testing.T, header string, size int64) {
		if size < 0 {
			return
		}
		p, ok := parseRange(header, size)
		if ok && (p.offset < 0 || p.length < 0 || p.length == 0 && size > 0 || p.offset > size-p.length) {
			t.Fatalf("%q of %d bytes is %+v", header, size, p)
		}
	})
}
