// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/substorm/substorm/internal/wire"
)

// Entry is an object that waits.
type Entry struct {
	// Notice is as it will be announced.
	Notice wire.Notice
	// Stored: the object is archived, and only its announcement is missing. It
	// has no bytes here.
	Stored bool
	// Size of the object's bytes in the spool.
	Size int64
	// Peer is the gateway that has a copy; empty if there is none.
	Peer string

	spool    *Spool
	sequence uint64
	segment  *segment
	// The record, and how much of it is meta.
	offset, size, meta int64
	parts              []Place
}

// run is a run of an object's bytes in a segment.
type run struct {
	segment *segment
	offset  int64 // of the bytes
	size    int64
}

// runs returns the places of the object's bytes, in their order. A part whose segment is gone is
// ErrCorrupt.
func (e *Entry) runs() ([]run, error) {
	if len(e.parts) == 0 {
		return []run{{e.segment, e.offset + headSize + e.meta, e.Size}}, nil
	}
	runs, err := e.spool.runs(e.parts)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, e.Notice.Key)
	}
	return runs, err
}

func (s *Spool) runs(parts []Place) ([]run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	runs := make([]run, 0, len(parts))
	for _, p := range parts {
		g := s.segment(p.Segment)
		if g == nil {
			return nil, fmt.Errorf("%w: segment %d, which holds a part, is gone", ErrCorrupt, p.Segment)
		}
		runs = append(runs, run{g, p.Offset + headSize, p.Size})
	}
	return runs, nil
}

// Parts returns a reader of parts that have no object yet.
func (s *Spool) Parts(parts []Place) (*Reader, error) {
	r, size := &Reader{}, int64(0)
	for _, p := range parts {
		size += p.Size
	}
	var err error
	r.runs, err = s.runs(parts)
	r.SectionReader = io.NewSectionReader(runsAt{r}, 0, size)
	return r, err
}

// Ref finds an entry that Next returned and that is not done yet. It takes less
// memory than the entry.
type Ref struct {
	segment *segment
	offset  int64
}

// Ref returns the place of the entry.
func (e *Entry) Ref() Ref { return Ref{e.segment, e.offset} }

// At reads an entry again. Errors: ErrCorrupt, or the file system's.
func (s *Spool) At(r Ref) (*Entry, error) {
	f, err := os.Open(r.segment.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s.mu.Lock()
	size := r.segment.size
	s.mu.Unlock()
	e, _, err := s.readEntry(r.segment, f, r.offset, size)
	if err == nil && e == nil {
		err = fmt.Errorf("%w: no object at %d of segment %d", ErrCorrupt, r.offset, r.segment.number)
	}
	return e, err
}

// Unsure says that the entry may never have come to the disk as a whole: the power may have been
// cut before it was receipted.
func (e *Entry) Unsure() bool { return e.segment.unsure }

// Verify reads the object and compares checksums. Errors: ErrCorrupt, or the
// file system's.
func (e *Entry) Verify() error {
	if e.Stored {
		return nil
	}
	runs, err := e.runs()
	if err != nil {
		return err
	}
	for i, r := range runs {
		if err := e.verifyRun(i, r); err != nil {
			return fmt.Errorf("spool record of %s: %w", e.Notice.Key, err)
		}
	}
	return nil
}

func (e *Entry) verifyRun(i int, r run) error {
	f, err := os.Open(r.segment.path)
	if err != nil {
		return err
	}
	defer f.Close()
	if len(e.parts) > 0 {
		e.spool.mu.Lock()
		size := r.segment.size
		e.spool.mu.Unlock()
		head, err := readHead(f, e.parts[i].Offset, size, r.segment.marker)
		if err != nil {
			return err
		}
		if head.kind != kindPart || head.body != r.size || len(head.meta) != 0 {
			return fmt.Errorf("%w: part %d is not a part", ErrCorrupt, i)
		}
	}
	return verifyBody(f, r.offset, r.size)
}

// Reader returns a reader of the object's bytes, which streams from the disk.
func (e *Entry) Reader() (*Reader, error) {
	r := &Reader{}
	if !e.Stored {
		var err error
		if r.runs, err = e.runs(); err != nil {
			return nil, err
		}
		r.SectionReader = io.NewSectionReader(runsAt{r}, 0, e.Size)
		return r, nil
	}
	r.SectionReader = io.NewSectionReader(runsAt{r}, 0, 0)
	return r, nil
}

// Reader reads an object from the spool. It belongs to one goroutine.
type Reader struct {
	*io.SectionReader
	runs []run
	// file is open on runs[at].
	file *os.File
	at   int
}

// runsAt reads the runs as if they were one.
type runsAt struct{ *Reader }

// ReadAt implements io.ReaderAt, but for one goroutine only.
func (r runsAt) ReadAt(p []byte, offset int64) (n int, err error) {
	for i := 0; i < len(r.runs) && n < len(p); i++ {
		if offset >= r.runs[i].size {
			offset -= r.runs[i].size
			continue
		}
		if err := r.open(i); err != nil {
			return n, err
		}
		whole := min(int64(len(p)-n), r.runs[i].size-offset)
		got, err := r.file.ReadAt(p[n:int64(n)+whole], r.runs[i].offset+offset)
		n += got
		if err != nil {
			return n, err
		}
		offset = 0
	}
	if n < len(p) {
		return n, io.ErrUnexpectedEOF
	}
	return n, nil
}

func (r *Reader) open(i int) error {
	if r.file != nil && r.at == i {
		return nil
	}
	if err := r.Close(); err != nil {
		return err
	}
	f, err := os.Open(r.runs[i].segment.path)
	if err != nil {
		return err
	}
	r.file, r.at = f, i
	return nil
}

// Close implements io.Closer.
func (r *Reader) Close() error {
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	r.file = nil
	return err
}

// Quarantine copies the entry's bytes to a file for inspection, logs it, and finishes the entry. If
// there is no space for the copy, the entry stays in the log, and is retried when the spool is
// opened the next time.
func (e *Entry) Quarantine(why error) error {
	runs, err := e.runs()
	if errors.Is(err, ErrCorrupt) {
		runs = nil
	}
	chunks := []run{{e.segment, e.offset, e.size}}
	if len(e.parts) > 0 {
		chunks = append(chunks, runs...)
	}
	counted := func(_ Quarantine, keep func() error) error { return keep() } // by the caller that asks for it
	if err := e.spool.quarantine(e.segment, e.offset, &e.Notice, why, counted, chunks...); err != nil {
		return err
	}
	return e.spool.Done(e)
}
