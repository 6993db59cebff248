// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// recover reads the segments: what is torn, what is corrupt, what is finished,
// what waits.
func (s *Spool) recover() error {
	if err := s.measureQuarantine(); err != nil {
		return err
	}
	if err := s.findSegments(); err != nil {
		return err
	}
	done := map[uint64]bool{}
	for i, g := range s.segments {
		g.unsure = i == len(s.segments)-1
		if err := s.scan(g, done); err != nil {
			return fmt.Errorf("%s: %w", g.path, err)
		}
		s.used += g.size
	}
	for _, g := range s.segments {
		if err := s.count(g, done); err != nil {
			return fmt.Errorf("%s: %w", g.path, err)
		}
	}
	s.removeFinished(true)
	return nil
}

// findSegments reads the beginnings of all segments.
func (s *Spool) findSegments() error {
	numbers, err := s.numbers()
	if err != nil {
		return err
	}
	for i, n := range numbers {
		g := &segment{number: n, path: segmentPath(s.cfg.Dir, n), gaps: map[int64]int64{}, finished: map[uint64]bool{}}
		err := s.readBeginning(g)
		switch {
		case err == nil:
			s.segments = append(s.segments, g)
		case !errors.Is(err, ErrCorrupt):
			return fmt.Errorf("%s: %w", g.path, err)
		case i == len(numbers)-1 && g.size <= segmentHead:
			s.cfg.Logger.Info("the last spool segment was just begun: it is removed", "file", g.path, "bytes", g.size)
			s.stats.Cut += g.size
			if err := os.Remove(g.path); err != nil {
				return err
			}
		default:
			if err := s.quarantineSegment(g, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// numbers returns the numbers of the segments, in their order, and leaves those of new
// ones behind them. An entry of the folder that has the name of a segment and is no file
// is moved away: it would be in the way of one.
func (s *Spool) numbers() ([]uint64, error) {
	files, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return nil, err
	}
	var numbers []uint64
	for _, f := range files {
		n, ok := numberOf(f.Name())
		if !ok {
			continue
		}
		s.number = max(s.number, n+1)
		if f.Type().IsRegular() {
			numbers = append(numbers, n)
			continue
		}
		s.moveAside(f)
	}
	slices.Sort(numbers)
	return numbers, nil
}

func (s *Spool) readBeginning(g *segment) error {
	f, err := os.Open(g.path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	g.size = info.Size()
	g.marker, err = readSegmentHead(f, g.number)
	return err
}

// scan reads the heads of a segment's records: what is done, and what is no record. The last
// segment may end in a torn one. A body is read when it is needed: a record with a correct head
// that is in the file as a whole may have been receipted, whatever became of its body.
func (s *Spool) scan(g *segment, done map[uint64]bool) error {
	f, err := os.Open(g.path)
	if err != nil {
		return err
	}
	defer f.Close()
	for offset := int64(segmentHead); offset < g.size; {
		r, err := readHead(f, offset, g.size, g.marker)
		if err == nil {
			err = s.scanRecord(&r, done)
		}
		if err == nil {
			offset += r.size()
			continue
		}
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, io.EOF) {
			return err
		}
		end, err := g.findRecord(f, offset+1, g.size)
		if err != nil {
			return err
		}
		if g.unsure && end == g.size {
			r, torn, err := g.tornAt(f, offset)
			if err != nil {
				return err
			}
			if torn {
				return s.cutTail(g, offset, r)
			}
		}
		s.quarantineGap(g, f, offset, end)
		offset = end
	}
	return nil
}

func (s *Spool) scanRecord(r *record, done map[uint64]bool) error {
	s.sequence = max(s.sequence, r.sequence+1)
	switch r.kind {
	case kindDone:
		n, err := r.done()
		if err != nil {
			return err
		}
		done[n] = true
		s.sequence = max(s.sequence, n+1)
	case kindObject, kindNotice:
		_, err := r.object()
		return err
	}
	return nil
}

// cutTail ends a segment where its last whole record ends. The bytes after it are the beginning of
// a record whose rest was never written: it has no receipt. If its head is whole, r is that record.
func (s *Spool) cutTail(g *segment, offset int64, r record) error {
	args := []any{"file", g.path, "offset", offset, "bytes", g.size - offset}
	if m, err := r.object(); err == nil {
		args = append(args, "instrument", m.Notice.Instrument, "key", m.Notice.Key, "receivedAt", m.Notice.ReceivedAt)
	}
	s.cfg.Logger.Warn("cutting off an incomplete record at the end of the spool: the record was never receipted", args...)
	s.stats.Cut += g.size - offset
	g.size = offset
	f, err := os.OpenFile(g.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(offset), s.sync(f), f.Close())
}

// count counts what waits in a segment that was scanned.
func (s *Spool) count(g *segment, done map[uint64]bool) error {
	f, err := os.Open(g.path)
	if err != nil {
		return err
	}
	defer f.Close()
	for offset := int64(segmentHead); offset < g.size; {
		if end, isGap := g.gaps[offset]; isGap {
			offset = end
			continue
		}
		e, end, err := s.readEntry(g, f, offset, g.size)
		if err != nil {
			return err
		}
		offset = end
		switch {
		case e == nil:
		case done[e.sequence]:
			g.finished[e.sequence] = true
		default:
			s.countWaiting(e)
		}
	}
	return nil
}

func (s *Spool) countWaiting(e *Entry) {
	if e.segment.unread == 0 {
		e.segment.oldest = e.Notice.ReceivedAt
	}
	e.segment.unread++
	e.segment.unreadBytes += e.Size
	s.stats.Objects++
	s.stats.Bytes += e.Size
	for _, p := range e.parts {
		if g := s.segment(p.Segment); g != nil {
			g.parts++
		}
	}
	signal(s.arrived)
}
