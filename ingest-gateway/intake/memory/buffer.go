// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// crowdedWait is how often a buffer that waits for scratch looks whether there
// is memory instead.
const crowdedWait = 250 * time.Millisecond

// Buffer is a run of bytes: the first of them may be in a scratch file, the rest is in slabs. It
// belongs to one goroutine. Nothing is copied to grow.
type Buffer struct {
	pool  *Pool
	limit int64
	wake  func()

	file   *os.File
	inFile int64
	slabs  [][]byte // all but the last are full
	fill   int      // bytes in the last slab
	spare  [][]byte // empty ones, of Reserve

	// asked: a waiting buffer wants this one's memory.
	asked atomic.Bool
	place *list.Element // in pool.idle; guarded by pool.mu
}

// NewBuffer returns an empty buffer for at most limit bytes. It holds no memory
// until Space is called. Wake is called, from any goroutine, when the buffer
// should yield its memory: it must bring its owner, who may be waiting for the
// network, to call Asked.
func (p *Pool) NewBuffer(limit int64, wake func()) *Buffer {
	return &Buffer{pool: p, limit: limit, wake: wake}
}

// Size is how many bytes the buffer holds.
func (b *Buffer) Size() int64 { return b.inFile + b.inMemory() }

func (b *Buffer) inMemory() int64 {
	n := int64(b.fill)
	for _, s := range b.slabs[:max(len(b.slabs)-1, 0)] {
		n += int64(len(s))
	}
	return n
}

// Full says whether the buffer is at its limit.
func (b *Buffer) Full() bool { return b.Size() >= b.limit }

// HoldsMemory says whether Space will return without waiting for a first slab.
func (b *Buffer) HoldsMemory() bool { return len(b.slabs) > 0 }

// Space returns a place for the next bytes, never empty; Advance says how many came. It waits for
// memory. Errors: ErrFull once ctx ends.
func (b *Buffer) Space(ctx context.Context) ([]byte, error) {
	if b.Full() {
		return nil, fmt.Errorf("buffer holds its %d bytes already", b.limit)
	}
	switch {
	case len(b.slabs) == 0:
		s, err := b.pool.firstSlab(ctx)
		if err != nil {
			return nil, err
		}
		b.grow(s)
	case b.fill == len(b.last()):
		if err := b.more(ctx); err != nil {
			return nil, err
		}
	}
	return b.FreeSpace(), nil
}

// TrySpace is Space where that takes neither waiting nor scratch, and says
// whether there is a place now.
func (b *Buffer) TrySpace() bool {
	size := int64(Slab)
	switch {
	case b.Full():
		return false
	case len(b.slabs) == 0:
		size = FirstSlab
	case b.fill < len(b.last()):
		return true
	case b.file != nil:
		return false
	}
	s := b.pool.trySlab(size)
	if s != nil {
		b.grow(s)
	}
	return s != nil
}

// FreeSpace returns a place for the next bytes if there is one without waiting, or nil.
func (b *Buffer) FreeSpace() []byte {
	if len(b.slabs) == 0 || b.fill == len(b.last()) || b.Full() {
		return nil
	}
	space := b.last()[b.fill:]
	return space[:min(int64(len(space)), b.limit-b.Size())]
}

func (b *Buffer) last() []byte { return b.slabs[len(b.slabs)-1] }

// Advance says that n bytes were written to what Space returned.
func (b *Buffer) Advance(n int) {
	b.fill += n
	b.pool.received.Add(uint64(n))
}

// grow adds an empty slab.
func (b *Buffer) grow(s []byte) {
	b.slabs = append(b.slabs, s)
	b.fill = 0
	b.pool.touch(b)
}

// more makes space when all slabs are full: with another slab, while the buffer is in memory and no
// other buffer waits for one, else by writing to scratch.
func (b *Buffer) more(ctx context.Context) error {
	if b.TrySpace() {
		return nil
	}
	err := b.spill(1)
	if !errors.Is(err, ErrFull) {
		return err
	}
	b.pool.crowded.Add(1)
	defer b.pool.crowded.Add(-1)
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		case <-time.After(crowdedWait):
		}
		if s := b.pool.trySlab(Slab); s != nil {
			b.grow(s)
			return nil
		}
		if err = b.spill(1); !errors.Is(err, ErrFull) {
			return err
		}
	}
}

// InMemory says whether all of the buffer's bytes are in memory.
func (b *Buffer) InMemory() bool { return b.file == nil }

// Reserve makes space for n more bytes by Write, if that takes neither waiting nor scratch, and
// says whether it did. A buffer that is filled so is not asked to yield its memory: its writer must
// need no more to make progress.
func (b *Buffer) Reserve(n int64) bool {
	space := int64(0)
	if len(b.slabs) > 0 {
		space = int64(len(b.last()) - b.fill)
	}
	for _, s := range b.spare {
		space += int64(len(s))
	}
	for space < n {
		size := int64(Slab)
		if len(b.slabs)+len(b.spare) == 0 && n <= FirstSlab {
			size = FirstSlab
		}
		s := b.pool.trySlab(size)
		if s == nil {
			return false
		}
		b.spare = append(b.spare, s)
		space += size
	}
	return true
}

// Write copies p into what Reserve made space for. Errors: io.ErrShortBuffer.
func (b *Buffer) Write(p []byte) (n int, err error) {
	for {
		if len(b.slabs) > 0 {
			copied := copy(b.last()[b.fill:], p[n:])
			b.fill += copied
			n += copied
		}
		if n == len(p) {
			return n, nil
		}
		if !b.next() {
			return n, io.ErrShortBuffer
		}
	}
}

// ReadFrom implements io.ReaderFrom as Write does: so io.Copy needs no buffer of
// its own. It needs space for more than there is to read.
func (b *Buffer) ReadFrom(r io.Reader) (n int64, err error) {
	for {
		if (len(b.slabs) == 0 || b.fill == len(b.last())) && !b.next() {
			return n, io.ErrShortBuffer
		}
		got, err := r.Read(b.last()[b.fill:])
		b.fill += got
		n += int64(got)
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, err
		}
	}
}

// next continues with the next slab of Reserve, if there is one.
func (b *Buffer) next() bool {
	if len(b.spare) == 0 {
		return false
	}
	b.slabs, b.fill = append(b.slabs, b.spare[0]), 0
	b.spare = b.spare[1:]
	return true
}

// Asked says whether the buffer should yield its memory.
func (b *Buffer) Asked() bool { return b.asked.Load() }

// Yield writes what is in memory to scratch and gives all of its memory back. If scratch is full,
// nothing changes. The owner first takes what the network has ready: so a buffer that got memory
// makes progress before it gives it back.
func (b *Buffer) Yield() error {
	b.asked.Store(false)
	if len(b.slabs) == 0 {
		return nil
	}
	err := b.spill(0)
	if errors.Is(err, ErrFull) {
		return nil
	}
	b.pool.forget(b)
	return err
}

// spill writes what is in memory to scratch and keeps so many slabs. Error
// ErrFull: there is no space, and nothing has changed.
func (b *Buffer) spill(keep int) error {
	n := b.inMemory()
	if !b.pool.scratch.TryAcquire(n) {
		return ErrFull
	}
	if err := b.write(); err != nil {
		b.pool.scratch.Release(n)
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			return fmt.Errorf("%w: %w", ErrFull, err)
		}
		return fmt.Errorf("scratch: %w", err)
	}
	b.pool.scratchUsed.Add(n)
	b.inFile += n
	for i := keep; i < len(b.slabs); i++ {
		b.pool.putSlab(b.slabs[i])
		b.slabs[i] = nil
	}
	b.slabs = b.slabs[:min(keep, len(b.slabs))]
	b.fill = 0
	return nil
}

// write appends the slabs to the scratch file.
func (b *Buffer) write() error {
	if b.file == nil {
		f, err := os.CreateTemp(b.pool.cfg.ScratchDir, "object-")
		if err != nil {
			return err
		}
		if err := os.Remove(f.Name()); err != nil { // it lives as long as it is open
			_ = f.Close()
			return err
		}
		b.file = f
		b.pool.spills.Add(1)
	}
	offset := b.inFile
	for i, s := range b.slabs {
		if i == len(b.slabs)-1 {
			s = s[:b.fill]
		}
		if _, err := b.file.WriteAt(s, offset); err != nil {
			return err
		}
		offset += int64(len(s))
	}
	return nil
}

// Seal says that no more bytes will come: the buffer's memory is not asked back
// any more. Readers may be used from now on, in any goroutine.
func (b *Buffer) Seal() { b.pool.forget(b) }

// Release gives memory and scratch back. The buffer is empty afterwards and may
// be used again.
func (b *Buffer) Release() {
	b.pool.forget(b)
	for _, s := range b.slabs {
		b.pool.putSlab(s)
	}
	for _, s := range b.spare {
		b.pool.putSlab(s)
	}
	b.slabs, b.spare, b.fill = nil, nil, 0
	if b.file != nil {
		_ = b.file.Close() // it has no name: closing removes it
		b.pool.scratchUsed.Add(-b.inFile)
		b.pool.scratch.Release(b.inFile)
		b.file, b.inFile = nil, 0
	}
}

// Reader returns a reader of the sealed buffer's bytes. It must not be used
// after Release.
func (b *Buffer) Reader() io.ReadSeeker {
	return io.NewSectionReader(sealed{b}, 0, b.Size())
}

// Bytes returns the sealed buffer's bytes. It must not be used after Release.
func (b *Buffer) Bytes() io.ReaderAt { return sealed{b} }

// sealed reads a buffer that does not change any more: what is in the file
// comes first, then the slabs.
type sealed struct{ *Buffer }

// ReadAt implements io.ReaderAt.
func (b sealed) ReadAt(p []byte, offset int64) (n int, err error) {
	if offset < b.inFile {
		n, err = b.file.ReadAt(p[:min(int64(len(p)), b.inFile-offset)], offset)
		if err != nil {
			return n, fmt.Errorf("scratch: %w", err)
		}
	}
	at := offset + int64(n) - b.inFile
	for _, s := range b.slabs {
		if n == len(p) {
			return n, nil
		}
		if at < int64(len(s)) {
			copied := copy(p[n:], s[at:])
			n += copied
			at += int64(copied)
		}
		at -= int64(len(s))
	}
	if n < len(p) {
		return n, io.ErrUnexpectedEOF
	}
	return n, nil
}
