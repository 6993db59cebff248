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
	// Stored: the object is at home, and only its announcement is missing. It
	// has no bytes here.
	Stored bool
	// Size of the object's bytes in the spool.
	Size int64

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

// runs returns where the object's bytes lie, in their order. A part whose
// segment is gone is ErrCorrupt.
func (e *Entry) runs() ([]run, error) {
	if len(e.parts) == 0 {
		return []run{{e.segment, e.offset + headSize + e.meta, e.Size}}, nil
	}
	e.spool.mu.Lock()
	defer e.spool.mu.Unlock()
	runs := make([]run, 0, len(e.parts))
	for _, p := range e.parts {
		g := e.spool.segment(p.Segment)
		if g == nil {
			return nil, fmt.Errorf("%w: segment %d, which holds a part of %s, is gone", ErrCorrupt, p.Segment, e.Notice.Key)
		}
		runs = append(runs, run{g, p.Offset + headSize, p.Size})
	}
	return runs, nil
}

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
			return fmt.Errorf("%w: part %d is none", ErrCorrupt, i)
		}
	}
	return verifyBody(f, r.offset, r.size)
}

// Reader returns a reader of the object's bytes, which streams from the disk.
func (e *Entry) Reader() (*Reader, error) {
	if e.Stored {
		return &Reader{}, nil
	}
	runs, err := e.runs()
	if err != nil {
		return nil, err
	}
	return &Reader{runs: runs, size: e.Size}, nil
}

// Reader reads an object from the spool. It belongs to one goroutine.
type Reader struct {
	runs         []run
	size, offset int64
	// file is open on runs[at].
	file *os.File
	at   int
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	if r.offset >= r.size {
		return 0, io.EOF
	}
	i, within := 0, r.offset
	for within >= r.runs[i].size {
		within -= r.runs[i].size
		i++
	}
	if r.file == nil || r.at != i {
		if err := r.Close(); err != nil {
			return 0, err
		}
		f, err := os.Open(r.runs[i].segment.path)
		if err != nil {
			return 0, err
		}
		r.file, r.at = f, i
	}
	n, err := r.file.ReadAt(p[:min(int64(len(p)), r.runs[i].size-within)], r.runs[i].offset+within)
	r.offset += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

// Seek implements io.Seeker.
func (r *Reader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.offset
	case io.SeekEnd:
		offset += r.size
	}
	if offset < 0 {
		return 0, fmt.Errorf("seek to %d", offset)
	}
	r.offset = offset
	return offset, nil
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

// Quarantine copies the entry's bytes to where somebody may look at them, logs
// it, and finishes the entry. Where there is no room for the copy the
// entry stays in the log, and is tried again when the spool is opened anew.
func (e *Entry) Quarantine(why error) error {
	runs, err := e.runs()
	if errors.Is(err, ErrCorrupt) {
		runs = nil
	}
	chunks := []run{{e.segment, e.offset, e.size}}
	if len(e.parts) > 0 {
		chunks = append(chunks, runs...)
	}
	if _, err := e.spool.quarantine(e.segment, e.offset, &e.Notice, why, chunks...); err != nil {
		return err
	}
	return e.spool.Done(e)
}
