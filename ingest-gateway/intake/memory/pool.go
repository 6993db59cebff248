// SPDX-License-Identifier: Apache-2.0

// Package memory holds what was received and is not yet stored: in pooled slabs
// under one byte budget, and where memory is short in scratch files.
//
// Why it cannot deadlock: a buffer waits for memory only while it holds none (its first slab). It
// gets more slabs only if no buffer waits; otherwise it writes what it has to scratch and uses its
// slab again. A waiting buffer makes idle buffers write their slabs to scratch too. When scratch is
// full as well, callers wait, which stops reading from the network, for as long as their context
// lets them.
package memory

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// Sizes in bytes. Measured: slabs of 256 KiB are as fast as whole buffers and
// need a tenth of the memory; a first one of 64 KiB is enough for most objects.
const (
	FirstSlab = 64 << 10
	Slab      = 256 << 10
)

// ErrFull says that memory and scratch stayed full for as long as the caller
// would wait.
var ErrFull = errors.New("memory and scratch are full")

// Config bounds a Pool.
type Config struct {
	// Budget in bytes for slabs; at least one first slab.
	Budget int64
	// ScratchDir is emptied at the start; a pool without one has no scratch.
	// ScratchSize bounds its files, in bytes.
	ScratchDir  string
	ScratchSize int64
}

// Pool hands out buffers. Its methods may be called from many goroutines.
type Pool struct {
	cfg     Config
	memory  *semaphore.Weighted
	scratch *semaphore.Weighted
	free    freeList

	memoryUsed, scratchUsed atomic.Int64
	// hungry buffers wait for their first slab, crowded ones for scratch.
	hungry, crowded atomic.Int64
	spills          atomic.Int64
	received        atomic.Uint64

	mu sync.Mutex
	// idle holds the buffers that may be asked to yield, the one that has gone
	// longest without a new slab first.
	idle *list.List // of *Buffer
}

// NewPool empties the scratch folder and returns a pool.
func NewPool(cfg Config) (*Pool, error) {
	if cfg.Budget < FirstSlab {
		return nil, fmt.Errorf("memory budget of %d bytes: it must hold at least one slab of %d", cfg.Budget, FirstSlab)
	}
	if cfg.ScratchDir == "" {
		cfg.ScratchSize = 0
	} else if err := emptyScratch(cfg.ScratchDir); err != nil {
		return nil, err
	}
	return &Pool{
		cfg:     cfg,
		memory:  semaphore.NewWeighted(cfg.Budget),
		scratch: semaphore.NewWeighted(max(cfg.ScratchSize, 0)),
		free:    freeList{budget: cfg.Budget},
		idle:    list.New(),
	}, nil
}

func emptyScratch(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("empty scratch: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make scratch: %w", err)
	}
	return nil
}

// Received is how many bytes have come into buffers since the start.
func (p *Pool) Received() uint64 { return p.received.Load() }

// Stats is a pool's state; all but Waiting and Spills in bytes.
type Stats struct {
	Budget, MemoryUsed       int64
	ScratchSize, ScratchUsed int64
	// Waiting is how many buffers wait for their first slab or for scratch.
	Waiting int64
	// Spills is how many buffers went to scratch since the start.
	Spills int64
}

// Stats returns the pool's state.
func (p *Pool) Stats() Stats {
	return Stats{
		Budget: p.cfg.Budget, MemoryUsed: p.memoryUsed.Load(),
		ScratchSize: p.cfg.ScratchSize, ScratchUsed: p.scratchUsed.Load(),
		Waiting: p.hungry.Load() + p.crowded.Load(), Spills: p.spills.Load(),
	}
}

// firstSlab waits for a slab, in order of arrival. Errors: ErrFull with ctx's.
func (p *Pool) firstSlab(ctx context.Context) ([]byte, error) {
	if !p.memory.TryAcquire(FirstSlab) {
		p.hungry.Add(1)
		defer p.hungry.Add(-1)
		p.reclaim()
		if err := p.memory.Acquire(ctx, FirstSlab); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFull, context.Cause(ctx))
		}
	}
	p.memoryUsed.Add(FirstSlab)
	return p.free.get(FirstSlab), nil
}

// trySlab returns a slab of one of the two sizes, or nil if another buffer waits for one.
func (p *Pool) trySlab(size int64) []byte {
	if !p.memory.TryAcquire(size) {
		return nil
	}
	p.memoryUsed.Add(size)
	return p.free.get(int(size))
}

func (p *Pool) putSlab(s []byte) {
	n := int64(cap(s))
	p.free.put(s)
	p.memoryUsed.Add(-n)
	p.memory.Release(n)
}

// reclaim asks the buffer that has been idle longest to yield its memory if a buffer waits for its
// first slab. A buffer that begins to wait calls it, and, as long as others wait, so does each
// buffer that gets memory or will not yield what it was asked for: so one yield is always on its
// way, or no buffer is left to ask.
func (p *Pool) reclaim() {
	if p.hungry.Load() == 0 {
		return
	}
	p.mu.Lock()
	var b *Buffer
	if e := p.idle.Front(); e != nil {
		b = e.Value.(*Buffer)
		p.idle.Remove(e)
		b.place = nil
	}
	p.mu.Unlock()
	if b != nil {
		b.asked.Store(true)
		b.wake()
	}
}

// touch notes that b holds memory and was given more just now.
func (p *Pool) touch(b *Buffer) {
	p.mu.Lock()
	if b.place != nil {
		p.idle.MoveToBack(b.place)
	} else {
		b.place = p.idle.PushBack(b)
	}
	p.mu.Unlock()
	p.reclaim()
}

// forget takes b out of those that may be asked to yield.
func (p *Pool) forget(b *Buffer) {
	p.mu.Lock()
	if b.place != nil {
		p.idle.Remove(b.place)
		b.place = nil
	}
	p.mu.Unlock()
	if b.asked.Swap(false) {
		p.reclaim()
	}
}

// freeList keeps slabs for use again. The slabs that it keeps and those in use stay within the budget together.
type freeList struct {
	mu           sync.Mutex
	budget       int64
	total        int64 // in use and kept
	first, slabs [][]byte
}

func (f *freeList) get(size int) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	own, other := &f.slabs, &f.first
	if size == FirstSlab {
		own, other = &f.first, &f.slabs
	}
	if n := len(*own); n > 0 {
		s := (*own)[n-1]
		(*own)[n-1] = nil
		*own = (*own)[:n-1]
		return s
	}
	for n := len(*other); n > 0 && f.total+int64(size) > f.budget; n-- { // let go of the other kind
		f.total -= int64(cap((*other)[n-1]))
		(*other)[n-1] = nil
		*other = (*other)[:n-1]
	}
	f.total += int64(size)
	return make([]byte, size)
}

func (f *freeList) put(s []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if cap(s) == FirstSlab {
		f.first = append(f.first, s)
	} else {
		f.slabs = append(f.slabs, s)
	}
}
