// SPDX-License-Identifier: Apache-2.0

package memory

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
	"testing/iotest"
	"time"

	"github.com/substorm/substorm/internal/testenv"
)

func newPool(t *testing.T, budget, scratch int64) *Pool {
	t.Helper()
	p, err := NewPool(Config{Budget: budget, ScratchDir: filepath.Join(t.TempDir(), "scratch"), ScratchSize: scratch})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s := p.Stats(); s.MemoryUsed != 0 || s.ScratchUsed != 0 || s.Waiting != 0 {
			t.Errorf("at the end the pool holds %+v", s)
		}
		if p.free.total > budget {
			t.Errorf("slabs of %d bytes are kept for a budget of %d", p.free.total, budget)
		}
	})
	return p
}

func random(t *testing.T, seed uint64, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	var key [32]byte
	key[0] = byte(seed)
	if _, err := rand.NewChaCha8(key).Read(b); err != nil {
		t.Fatal(err)
	}
	return b
}

// fill writes data as a connection would, yielding when it is asked to.
func fill(ctx context.Context, b *Buffer, data []byte) error {
	for len(data) > 0 {
		space, err := b.Space(ctx)
		if err != nil {
			return err
		}
		n := copy(space, data)
		b.Advance(n)
		data = data[n:]
		if b.Asked() {
			if err := b.Yield(); err != nil {
				return err
			}
		}
	}
	return nil
}

func check(t *testing.T, b *Buffer, want []byte) {
	t.Helper()
	b.Seal()
	if b.Size() != int64(len(want)) {
		t.Fatalf("buffer of %d bytes, want %d", b.Size(), len(want))
	}
	got, err := io.ReadAll(b.Reader())
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("read %d bytes (%v), digest %x, want %d, %x", len(got), err, sha256.Sum256(got), len(want), sha256.Sum256(want))
	}
}

func TestBufferInMemoryAndScratch(t *testing.T) {
	for _, size := range []int{1, FirstSlab - 1, FirstSlab, FirstSlab + 1, FirstSlab + Slab, FirstSlab + Slab + 1, 3<<20 + 17} {
		data := random(t, 1, size)
		for name, budget := range map[string]int64{"memory": 8 << 20, "scratch": FirstSlab} {
			p := newPool(t, budget, 8<<20)
			b := p.NewBuffer(16<<20, func() {})
			if err := fill(t.Context(), b, data); err != nil {
				t.Fatal(err)
			}
			if spilled := p.Stats().Spills > 0; spilled != (name == "scratch" && size > FirstSlab) {
				t.Errorf("%s, %d bytes: spilled %v", name, size, spilled)
			}
			check(t, b, data)
			if err := iotest.TestReader(b.Reader(), data); err != nil {
				t.Errorf("%s, %d bytes: %v", name, size, err)
			}
			b.Release()
		}
	}
}

// A buffer that yields in the middle continues where it was.
func TestYield(t *testing.T) {
	p := newPool(t, 4<<20, 8<<20)
	data := random(t, 2, 2<<20)
	b := p.NewBuffer(16<<20, func() {})
	for at := 0; at < len(data); at += 300_000 {
		if err := fill(t.Context(), b, data[at:min(at+300_000, len(data))]); err != nil {
			t.Fatal(err)
		}
		if err := b.Yield(); err != nil {
			t.Fatal(err)
		}
		if used := p.Stats().MemoryUsed; used != 0 {
			t.Fatalf("%d bytes of memory in use after a yield", used)
		}
	}
	check(t, b, data)
	b.Release()
}

func TestLimit(t *testing.T) {
	p := newPool(t, 4<<20, 0)
	b := p.NewBuffer(FirstSlab+10, func() {})
	if err := fill(t.Context(), b, random(t, 3, FirstSlab+10)); err != nil {
		t.Fatal(err)
	}
	if !b.Full() {
		t.Error("the buffer is at its limit and does not say so")
	}
	if _, err := b.Space(t.Context()); err == nil {
		t.Error("there is space beyond the limit")
	}
	b.Release()
}

// A waiting buffer makes an idle one yield, and gets its memory.
func TestWaitersGetIdleMemory(t *testing.T) {
	p := newPool(t, FirstSlab, 1<<20)
	asked := make(chan struct{}, 1)
	idle := p.NewBuffer(1<<20, func() { asked <- struct{}{} })
	first := random(t, 4, 1000)
	if err := fill(t.Context(), idle, first); err != nil {
		t.Fatal(err)
	}
	second := random(t, 5, 2000)
	other := p.NewBuffer(1<<20, func() {})
	done := make(chan error, 1)
	go func() { done <- fill(t.Context(), other, second) }()
	<-asked
	if !idle.Asked() {
		t.Fatal("wake was called and Asked is false")
	}
	if err := idle.Yield(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	check(t, other, second)
	other.Release()
	check(t, idle, first)
	idle.Release()
}

// A buffer that was asked and is sealed instead hands the request on.
func TestSealHandsRequestOn(t *testing.T) {
	p := newPool(t, 2*FirstSlab, 1<<20)
	asked := make(chan *Buffer, 2)
	var buffers [2]*Buffer
	for i := range buffers {
		buffers[i] = p.NewBuffer(1<<20, func() { asked <- buffers[i] })
		if err := fill(t.Context(), buffers[i], []byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	other := p.NewBuffer(1<<20, func() {})
	done := make(chan error, 1)
	go func() { done <- fill(t.Context(), other, []byte{2}) }()
	if b := <-asked; b != buffers[0] {
		t.Fatal("not the buffer that was idle longest was asked first")
	}
	buffers[0].Seal()
	if b := <-asked; b != buffers[1] {
		t.Fatal("the request was not handed on")
	}
	if err := buffers[1].Yield(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, b := range append(buffers[:], other) {
		b.Release()
	}
}

func TestFull(t *testing.T) {
	p := newPool(t, 2*FirstSlab, FirstSlab)
	ctx, cancel := context.WithCancel(t.Context())
	b := p.NewBuffer(1<<20, func() {})
	done := make(chan error, 1)
	go func() { done <- fill(ctx, b, random(t, 6, 3*FirstSlab)) }() // one slab in scratch, one in memory, one nowhere
	testenv.Await(t, "the buffer waits for memory", func() bool { return p.Stats().Waiting > 0 })
	cancel()
	if err := <-done; !errors.Is(err, ErrFull) || !errors.Is(err, context.Canceled) {
		t.Fatalf("with memory and scratch full: %v", err)
	}
	if b.Size() != 2*FirstSlab {
		t.Errorf("the buffer holds %d bytes", b.Size())
	}
	b.Release()
}

// Space in memory lets a buffer continue that waits for scratch.
func TestCrowdedGoesOn(t *testing.T) {
	p := newPool(t, FirstSlab+Slab, FirstSlab)
	big := p.trySlab(Slab)
	data := random(t, 7, 3*FirstSlab)
	b := p.NewBuffer(1<<20, func() {})
	done := make(chan error, 1)
	hold := p.NewBuffer(1<<20, func() {})
	if !p.scratch.TryAcquire(FirstSlab) {
		t.Fatal("no scratch")
	}
	go func() { done <- fill(t.Context(), b, data) }()
	testenv.Await(t, "the buffer waits for scratch", func() bool { return p.Stats().Waiting > 0 })
	p.putSlab(big)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	check(t, b, data)
	b.Release()
	hold.Release()
	p.scratch.Release(FirstSlab)
}

func TestScratchIsEmptiedAndLeavesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "scratch")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "object-left"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := NewPool(Config{Budget: FirstSlab, ScratchDir: dir, ScratchSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	b := p.NewBuffer(1<<20, func() {})
	if err := fill(t.Context(), b, random(t, 8, 2*FirstSlab)); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 0 {
		t.Errorf("scratch holds %v, %v", entries, err)
	}
	b.Release()
	if _, err := NewPool(Config{Budget: FirstSlab - 1, ScratchDir: dir}); err == nil {
		t.Error("a budget below one slab is accepted")
	}
}

// Many buffers, each larger than its share, in a budget that holds only a few
// first slabs: all come to their end, whole.
func TestManyBuffersInLittleMemory(t *testing.T) {
	p := newPool(t, 5*FirstSlab+Slab, 64<<20)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			data := random(t, uint64(i), 150_000+i)
			wake := make(chan struct{}, 1)
			b := p.NewBuffer(1<<20, func() {
				select {
				case wake <- struct{}{}:
				default:
				}
			})
			defer b.Release()
			for at := 0; at < len(data); at += 50_000 {
				if err := fill(t.Context(), b, data[at:min(at+50_000, len(data))]); err != nil {
					t.Error(err)
					return
				}
				select { // idle for a while, or until the memory is wanted
				case <-wake:
					if err := b.Yield(); err != nil {
						t.Error(err)
						return
					}
				case <-time.After(10 * time.Millisecond):
				}
			}
			b.Seal()
			got, err := io.ReadAll(b.Reader())
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("buffer %d: %d bytes, %v", i, len(got), err)
			}
		})
	}
	wg.Wait()
}
