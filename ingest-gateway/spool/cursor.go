// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"context"
	"errors"
	"os"
)

// cursor is where Next reads: everything before it was given out.
type cursor struct {
	number uint64 // of the segment
	offset int64
	file   *os.File
}

func (c *cursor) move(g *segment) error {
	if c.file != nil {
		_ = c.file.Close()
		c.file = nil
	}
	f, err := os.Open(g.path)
	if err != nil {
		return err
	}
	c.number, c.offset, c.file = g.number, segmentHead, f
	return nil
}

// closeRemoved closes the cursor's segment if that was removed: an open file takes its space on the volume
// all the same.
func (s *Spool) closeRemoved() {
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.cursor.file == nil {
		return
	}
	s.mu.Lock()
	gone := s.segment(s.cursor.number) == nil
	s.mu.Unlock()
	if gone {
		_ = s.cursor.file.Close()
		s.cursor.file = nil
	}
}

// Next returns the object that has waited longest of those that Next has not returned since the
// spool was opened. It waits for one. Each ends in Done or Quarantine, or is returned again after
// the spool was reopened. Errors: ctx's, ErrClosed, or the file system's.
func (s *Spool) Next(ctx context.Context) (*Entry, error) {
	for {
		e, err := s.next()
		s.mu.Lock()
		more, closed := s.unread() > 0, s.closed
		s.mu.Unlock()
		if more || closed {
			signal(s.arrived) // for another that waits
		}
		switch {
		case e != nil || err != nil:
			return e, err
		case closed:
			return nil, ErrClosed
		case more:
			continue
		}
		select {
		case <-s.arrived:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// More says whether Next has something to return.
func (s *Spool) More() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && s.unread() > 0
}

// unread is how many objects the cursor has before it.
func (s *Spool) unread() int64 { return s.stats.Objects - int64(len(s.given)) }

// next returns the next entry, or nil if there is none.
func (s *Spool) next() (*Entry, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	for {
		at := s.atCursor()
		g := at.segment
		if g == nil {
			return nil, nil
		}
		if g.number != s.cursor.number || s.cursor.file == nil {
			if err := s.cursor.move(g); err != nil {
				return nil, err
			}
		}
		e, err := s.readOn(g, at.size)
		if e != nil || err != nil {
			return e, err
		}
		s.skipUnread(at)
	}
}

// sight is what the cursor has before it in a segment.
type sight struct {
	segment *segment
	size    int64
	// unread objects are in the segment's first size bytes.
	unread, unreadBytes int64
	// sealed: that is all that the segment will ever hold.
	sealed bool
}

// atCursor returns the next segment that holds something unread; none if nothing is.
func (s *Spool) atCursor() sight {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.unread() == 0 {
		return sight{}
	}
	for _, g := range s.segments {
		if g.number >= s.cursor.number && g.unread > 0 {
			return sight{g, g.size, g.unread, g.unreadBytes, g != s.active}
		}
	}
	return sight{}
}

// readOn returns the next entry of a segment up to an offset, or nil.
func (s *Spool) readOn(g *segment, size int64) (*Entry, error) {
	c := &s.cursor
	for c.offset < size {
		if end, isGap := g.gaps[c.offset]; isGap {
			c.offset = end
			continue
		}
		e, end, err := s.readEntry(g, c.file, c.offset, size)
		if errors.Is(err, ErrCorrupt) {
			if end, err = g.findRecord(c.file, c.offset+1, size); err == nil {
				s.quarantineGap(g, c.file, c.offset, end)
			}
		}
		if err != nil {
			return nil, err
		}
		c.offset = end
		if e == nil {
			continue
		}
		if g.finished[e.sequence] {
			continue
		}
		s.mu.Lock()
		g.unread--
		g.unreadBytes -= e.Size
		g.open++
		s.given[e.sequence] = e.Notice.ReceivedAt
		s.mu.Unlock()
		return e, nil
	}
	return nil, nil
}

// readEntry reads the record at an offset and returns where it ends; the entry
// is nil for records that wait for nothing.
func (s *Spool) readEntry(g *segment, f *os.File, offset, size int64) (*Entry, int64, error) {
	r, err := readHead(f, offset, size, g.marker)
	if err != nil {
		return nil, 0, err
	}
	end := offset + r.size()
	if r.kind != kindObject && r.kind != kindNotice {
		return nil, end, nil
	}
	m, err := r.object()
	if err != nil {
		return nil, 0, err
	}
	e := &Entry{
		Notice: m.Notice, Peer: m.Peer, Stored: r.kind == kindNotice, Size: m.size(&r),
		spool: s, sequence: r.sequence, segment: g, offset: offset, size: r.size(), meta: int64(len(r.meta)), parts: m.Parts,
	}
	return e, end, nil
}

// skipUnread notes that the cursor found none of what it should have: it is in
// quarantine.
func (s *Spool) skipUnread(at sight) {
	s.mu.Lock()
	s.stats.Objects -= at.unread
	s.stats.Bytes -= at.unreadBytes
	at.segment.unread -= at.unread
	at.segment.unreadBytes -= at.unreadBytes
	s.mu.Unlock()
	signal(s.work)
}
