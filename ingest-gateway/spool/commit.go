// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/internal/wire"
)

// bufferSize is the size of the one buffer through which bytes go into the log.
const bufferSize = 256 << 10

// request is a record on its way to the disk.
type request struct {
	kind kind
	meta []byte
	body io.Reader
	size int64
	// entry is what kindDone finishes; parts are the parts of an object.
	entry *Entry
	parts []Place
	// receivedAt of an object or a notice.
	receivedAt time.Time

	record  record
	segment *segment
	offset  int64
	err     error
	settled chan struct{}
}

// Object appends an object that waits for the store and returns once it is on
// the disk. Its bytes are body, or parts in their order. Errors: ErrFull,
// ErrClosed, body's, or the file system's; then nothing is kept, of the parts
// neither.
func (s *Spool) Object(n wire.Notice, body io.Reader, size int64, parts ...Place) error {
	return s.Copied(n, "", body, size, parts...)
}

// Copied is Object for an object that another gateway has a copy of.
func (s *Spool) Copied(n wire.Notice, peer string, body io.Reader, size int64, parts ...Place) error {
	meta, err := encodeObject(n, peer, parts)
	if err == nil && size > MaxBody {
		err = fmt.Errorf("spool: a body of %d bytes must be split into parts of at most %d", size, MaxBody)
	}
	if err == nil {
		err = s.submit(&request{kind: kindObject, meta: meta, body: body, size: size, parts: parts, receivedAt: n.ReceivedAt})
	}
	if err != nil {
		s.Drop(parts)
	}
	return err
}

// Notice appends an object that is stored and waits for its announcement.
func (s *Spool) Notice(n wire.Notice) error {
	meta, err := encodeObject(n, "", nil)
	if err != nil {
		return err
	}
	return s.submit(&request{kind: kindNotice, meta: meta, receivedAt: n.ReceivedAt})
}

// Part appends a part of an object that is still arriving. It stays until the
// object's entry is done, or Drop gives it up. Errors are as for Object.
func (s *Spool) Part(body io.Reader, size int64) (Place, error) {
	r := &request{kind: kindPart, body: body, size: size}
	if err := s.submit(r); err != nil {
		return Place{}, err
	}
	return Place{Segment: r.segment.number, Offset: r.offset, Size: size}, nil
}

// Drop gives up parts that will not become an object.
func (s *Spool) Drop(parts []Place) {
	s.mu.Lock()
	s.release(parts)
	s.mu.Unlock()
	signal(s.work) // the writer removes what is finished
}

// submit queues a record and waits until it is on the disk, or is not and never will be.
func (s *Spool) submit(r *request) error {
	r.settled = make(chan struct{})
	r.record = record{kind: r.kind, meta: r.meta, body: r.size}
	s.mu.Lock()
	// A full spool still takes records of what is done: they make space.
	switch {
	case s.closed:
		s.mu.Unlock()
		return ErrClosed
	case r.kind != kindDone && s.used+r.record.size() > s.cfg.Size:
		s.mu.Unlock()
		return fmt.Errorf("%w: it holds %d of %d bytes", ErrFull, s.used, s.cfg.Size)
	}
	s.used += r.record.size() // until the writer knows better
	s.queue = append(s.queue, r)
	s.mu.Unlock()
	signal(s.work)
	<-r.settled
	return r.err
}

// write commits batches until the spool is closed.
func (s *Spool) write() {
	defer close(s.stopped)
	out := &output{buf: make([]byte, 0, bufferSize)}
	for {
		s.mu.Lock()
		removed := s.removeFinished(false)
		batch := s.batch()
		closed := s.closed
		s.mu.Unlock()
		if removed {
			s.closeRemoved()
		}
		if len(batch) == 0 {
			if closed {
				return
			}
			<-s.work
			continue
		}
		s.commit(out, batch)
	}
}

// batch takes requests off the queue.
func (s *Spool) batch() []*request {
	var n int
	var size int64
	for n < len(s.queue) && (n == 0 || size+s.queue[n].record.size() <= maxBatch) {
		size += s.queue[n].record.size()
		n++
	}
	batch := s.queue[:n:n]
	s.queue = s.queue[n:]
	return batch
}

// commit puts a batch on the disk and answers. A batch is in one segment.
func (s *Spool) commit(out *output, batch []*request) {
	err := s.prepare(batch)
	end := int64(0)
	if err == nil {
		end, err = s.writeBatch(out, batch)
		if err == nil {
			err = s.sync(s.active.file)
		}
		if err != nil {
			s.retire()
		}
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		err = fmt.Errorf("%w: %w", ErrFull, err)
	}
	s.mu.Lock()
	if err == nil {
		s.active.size = end
		s.stats.Batches++
	}
	for _, r := range batch {
		if r.err == nil {
			r.err = err
		}
		if r.err != nil {
			s.used -= r.record.size()
		}
		if r.err != nil && r.kind == kindDone {
			// It is archived all the same, and its space is needed. After a restart
			// it would be found archived once more.
			s.cfg.Logger.Warn("the spool cannot record that an object is finished", "error", r.err)
			r.err = nil
		}
		if r.err == nil {
			s.committed(r)
		}
	}
	s.mu.Unlock()
	for _, r := range batch {
		close(r.settled)
	}
}

// prepare makes the active segment one that holds the batch.
func (s *Spool) prepare(batch []*request) error {
	size := int64(0)
	for _, r := range batch {
		size += r.record.size()
	}
	if s.active != nil && s.active.size+size > s.cfg.SegmentSize && s.active.size > segmentHead {
		_ = s.active.file.Close() // it is synced
		s.mu.Lock()
		s.active = nil
		s.mu.Unlock()
	}
	if s.active != nil {
		return nil
	}
	g, err := s.createSegment(s.number)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	s.used += g.size
	s.active = g
	s.segments = append(s.segments, g)
	return nil
}

// writeBatch writes records behind what is committed and returns where they
// end. A request whose body cannot be read fails alone.
func (s *Spool) writeBatch(out *output, batch []*request) (int64, error) {
	g := s.active
	out.begin(g.file, g.size)
	for _, r := range batch {
		r.segment, r.offset, r.record.sequence = g, out.end(), s.sequence
		if err := r.writeTo(out, g.marker); err != nil {
			return 0, err
		}
		if r.err != nil {
			if err := out.cut(r.offset); err != nil {
				return 0, err
			}
			continue
		}
		s.sequence++
	}
	return out.end(), out.flush()
}

// writeTo writes the record. An error of its body is left in r.err.
func (r *request) writeTo(out *output, m marker) error {
	if err := out.write(r.record.appendHead(nil, m)); err != nil {
		return err
	}
	crc := uint32(0)
	for left := r.size; left > 0; {
		if err := out.makeSpace(); err != nil {
			return err
		}
		n, err := r.body.Read(out.space(left))
		crc = crc32.Update(crc, castagnoli, out.advance(n))
		left -= int64(n)
		if err != nil && left > 0 {
			r.err = fmt.Errorf("spool: %d bytes are missing: %w", left, err)
			return nil
		}
	}
	return out.write(binary.LittleEndian.AppendUint32(nil, crc))
}

// retire ends a segment to which writing failed. It is unknown what of the last batch is on the
// disk, and a second sync would not show it: it is cut off.
func (s *Spool) retire() {
	g := s.active
	err := errors.Join(g.file.Truncate(g.size), g.file.Close())
	if err != nil {
		s.cfg.Logger.Warn("a spool segment may end in records that were refused: objects may come twice", "file", g.path, "error", err)
	}
	s.mu.Lock()
	s.active = nil
	s.mu.Unlock()
}

// committed counts a record that is on the disk.
func (s *Spool) committed(r *request) {
	s.stats.Records++
	switch r.kind {
	case kindObject, kindNotice:
		if r.segment.unread == 0 && r.segment.open == 0 {
			r.segment.oldest = r.receivedAt
		}
		size := r.size
		for _, p := range r.parts {
			size += p.Size
		}
		r.segment.unread++
		r.segment.unreadBytes += size
		s.stats.Objects++
		s.stats.Bytes += size
		signal(s.arrived)
	case kindPart:
		r.segment.parts++
	case kindDone:
		e := r.entry
		delete(s.given, e.sequence)
		e.segment.open--
		s.stats.Objects--
		s.stats.Bytes -= e.Size
		s.release(e.parts)
	}
}

// release counts parts that are no longer needed.
func (s *Spool) release(parts []Place) {
	for _, p := range parts {
		if g := s.segment(p.Segment); g != nil {
			g.parts--
		}
	}
}

// segment returns the segment of a number, or nil.
func (s *Spool) segment(number uint64) *segment {
	i, found := slices.BinarySearchFunc(s.segments, number, func(g *segment, n uint64) int { return cmp.Compare(g.number, n) })
	if !found {
		return nil
	}
	return s.segments[i]
}

// removeFinished removes segments from the front; the active one only when it
// is large, or asked for. It says whether it removed any.
func (s *Spool) removeFinished(active bool) (removed bool) {
	for len(s.segments) > 0 {
		g := s.segments[0]
		if g.needed() || g == s.active && (len(s.queue) > 0 || !active && g.size < keepActive) {
			return removed
		}
		if g == s.active {
			_ = g.file.Close()
			s.active = nil
		}
		if err := os.Remove(g.path); err != nil {
			s.cfg.Logger.Warn("cannot remove a finished spool segment", "file", g.path, "error", err)
			return removed
		}
		s.used -= g.size
		s.segments = s.segments[1:]
		removed = true
	}
	return removed
}
