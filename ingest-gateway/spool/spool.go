// SPDX-License-Identifier: Apache-2.0

// Package spool keeps on the gateway's volume what was receipted and is not yet
// stored and announced: a log of segment files with group commit, read from its
// front in the order of arrival. internal/wire/README.md describes the files.
//
// One goroutine writes. A caller that appends waits until its record is on the disk; what arrives
// meanwhile goes to the disk in the next batch, with one sync for all. Memory holds counts for each
// segment, and entries that Next gave out and that are not finished: not what waits.
//
// A segment is removed once nothing in it or before it is needed any more. So a Done record
// outlives the record that it refers to.
package spool

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// ErrFull says that the spool has its size, or the volume is full. Nothing of
// the record is kept.
var ErrFull = errors.New("spool is full")

// ErrClosed says that the spool takes and gives no more.
var ErrClosed = errors.New("spool is closed")

// ErrCorrupt says that a record cannot be read as it was written.
var ErrCorrupt = errors.New("corrupt spool record")

const (
	// DefaultSegmentSize of a segment in bytes. It must hold the largest record.
	DefaultSegmentSize = 64 << 20
	// MaxBody is the size of a record's body in bytes; a larger object is in parts.
	MaxBody = 16 << 20
	// maxBatch bounds a batch in bytes, and so how long the first of it waits.
	maxBatch = 8 << 20
	// keepActive is the size up to which the last segment is kept though nothing
	// in it is needed: the next record saves the making of a file.
	keepActive = 1 << 20

	quarantineFolder = "quarantine"
	extension        = ".log"
)

// Config says where a spool is.
type Config struct {
	// Dir holds the segments, and quarantined bytes in a folder of its own.
	Dir string
	// Size bounds all that Dir holds, in bytes.
	Size int64
	// SegmentSize in bytes; 0 is DefaultSegmentSize.
	SegmentSize int64
	Logger      *slog.Logger
	// Quarantined gets corrupt bytes that Open or Next found, and calls keep, which puts them into
	// quarantine. Keep takes effect once; a kill before that lets the bytes be found again.
	// Quarantined may be nil, and must not call the spool.
	Quarantined func(q Quarantine, keep func() error) error

	// unsafe leaves out every sync: what a power cut then does is a test's control.
	unsafe bool
}

// Quarantine is a run of bytes that cannot be read as records.
type Quarantine struct {
	// File holds the bytes.
	File string
	Size int64
	// Notice is the notice of the lost object; nil if it is unknown.
	Notice *wire.Notice
}

// Stats is a spool's state.
type Stats struct {
	// Objects that wait or are draining, and their bytes.
	Objects, Bytes int64
	// Oldest is when the oldest of them was received; zero if there is none.
	Oldest time.Time
	// Size bounds, and Used is, what the files take, in bytes.
	Size, Used int64
	// Quarantined is how many files are in quarantine, from all incarnations.
	Quarantined int64
	// Cut bytes off its end when it was opened: a record that was torn.
	Cut int64
	// Batches and Records that were committed since then.
	Batches, Records int64
}

// Spool is open until Close. Its methods may be called from many goroutines.
type Spool struct {
	cfg Config

	mu       sync.Mutex
	segments []*segment // in the order of their numbers
	active   *segment   // the last of them while it is written to, or nil
	sequence uint64     // of the next record
	number   uint64     // of the next segment
	used     int64      // bytes in all files
	queue    []*request
	closed   bool
	work     chan struct{} // has something where the writer should look

	given   map[uint64]time.Time // when it was received, by sequence
	arrived chan struct{}        // has something where Next should look
	stats   Stats

	// reading guards the cursor and what only it uses.
	reading sync.Mutex
	cursor  cursor
	stopped chan struct{}
}

// Open reads what Dir holds: it cuts off a record that was not written to its
// end, quarantines what is corrupt, removes what is finished. Errors: wire.ErrNewerFormat, or the file system's.
func Open(cfg Config) (*Spool, error) {
	if cfg.SegmentSize <= 0 {
		cfg.SegmentSize = DefaultSegmentSize
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(filepath.Join(cfg.Dir, quarantineFolder), 0o750); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	s := &Spool{
		cfg: cfg, sequence: 1, number: 1, work: make(chan struct{}, 1), arrived: make(chan struct{}, 1),
		given: map[uint64]time.Time{}, stopped: make(chan struct{}),
	}
	s.stats.Size = cfg.Size
	if err := s.recover(); err != nil {
		return nil, fmt.Errorf("spool %s: %w", cfg.Dir, err)
	}
	go s.write()
	return s, nil
}

// Close commits what is queued and ends Next. Objects that wait stay on the volume.
func (s *Spool) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	signal(s.work)
	<-s.stopped
	signal(s.arrived)
	s.mu.Lock()
	s.removeFinished(true)
	s.mu.Unlock()
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.cursor.file != nil {
		_ = s.cursor.file.Close()
		s.cursor.file = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active == nil {
		return nil
	}
	return s.active.file.Close()
}

// Stats returns the spool's state.
func (s *Spool) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Used = s.used
	for _, at := range s.given {
		if st.Oldest.IsZero() || at.Before(st.Oldest) {
			st.Oldest = at
		}
	}
	for _, g := range s.segments {
		if !st.Oldest.IsZero() {
			break
		}
		if g.unread > 0 {
			st.Oldest = g.oldest
		}
	}
	return st
}

// signal wakes the goroutine that waits on a channel of one place.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Done says that an entry that Next returned is archived and announced, or
// quarantined. It returns once that is on the disk.
func (s *Spool) Done(e *Entry) error {
	return s.submit(&request{kind: kindDone, meta: encodeDone(e.sequence), entry: e})
}
