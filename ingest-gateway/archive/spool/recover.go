// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/substorm/substorm/internal/wire"
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
		if err := s.scan(g, i == len(s.segments)-1, done); err != nil {
			return fmt.Errorf("%s: %w", g.path, err)
		}
		s.used += g.size
		s.number = g.number + 1
	}
	s.opened = s.number
	for _, g := range s.segments {
		if err := s.count(g, done); err != nil {
			return fmt.Errorf("%s: %w", g.path, err)
		}
	}
	s.removeFinished(true)
	return nil
}

func (s *Spool) measureQuarantine() error {
	files, err := os.ReadDir(filepath.Join(s.cfg.Dir, quarantineFolder))
	if err != nil {
		return err
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			return err
		}
		s.used += info.Size()
	}
	return nil
}

// findSegments reads the beginnings of all segments.
func (s *Spool) findSegments() error {
	files, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return err
	}
	var numbers []uint64
	for _, f := range files {
		if n, ok := numberOf(f.Name()); ok {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	for i, n := range numbers {
		g := &segment{number: n, path: segmentPath(s.cfg.Dir, n), gaps: map[int64]int64{}, finished: map[uint64]bool{}}
		s.number = n + 1
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

// scan reads the records of a segment, and their bodies too where it is the
// last one: what was synced before another began is read when it is needed. It
// notes what is done, finds gaps, and cuts a torn tail.
func (s *Spool) scan(g *segment, last bool, done map[uint64]bool) error {
	f, err := os.Open(g.path)
	if err != nil {
		return err
	}
	defer f.Close()
	for offset := int64(segmentHead); offset < g.size; {
		r, err := readHead(f, offset, g.size, g.marker)
		if err == nil {
			err = s.scanRecord(f, offset, &r, last, done)
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
		if last && end == g.size {
			return s.cutTail(g, offset)
		}
		s.quarantineGap(g, f, offset, end)
		offset = end
	}
	return nil
}

func (s *Spool) scanRecord(f *os.File, offset int64, r *record, verify bool, done map[uint64]bool) error {
	if verify {
		if err := verifyBody(f, offset+headSize+int64(len(r.meta)), r.body); err != nil {
			return err
		}
	}
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

// cutTail ends a segment where its last whole record ends. What comes after was
// never receipted.
func (s *Spool) cutTail(g *segment, offset int64) error {
	s.cfg.Logger.Info("the spool's torn tail is cut off", "file", g.path, "offset", offset, "bytes", g.size-offset)
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

// quarantineSegment moves a file that does not begin as a segment.
func (s *Spool) quarantineSegment(g *segment, why error) error {
	to := filepath.Join(s.cfg.Dir, quarantineFolder, filepath.Base(g.path))
	if err := os.Rename(g.path, to); err != nil {
		return err
	}
	s.used += g.size
	s.report(Quarantine{File: to, Size: g.size}, why)
	s.tell(Quarantine{File: to, Size: g.size})
	return nil
}

// quarantineGap keeps a run of bytes that are no records apart, and notes it.
func (s *Spool) quarantineGap(g *segment, f *os.File, from, to int64) {
	g.gaps[from] = to
	var n *wire.Notice
	if r, err := readHead(f, from, to, g.marker); err == nil {
		if m, err := r.object(); err == nil {
			n = &m.Notice
		}
	}
	why := fmt.Errorf("%w: %d bytes at %d of segment %d", ErrCorrupt, to-from, from, g.number)
	isNew, err := s.quarantine(g, from, n, why, run{g, from, to - from})
	if err != nil {
		s.cfg.Logger.Error("corrupt bytes of the spool cannot be kept: the segment's file is the only copy", "file", g.path,
			"offset", from, "bytes", to-from, "error", err)
	}
	if isNew || err != nil {
		s.tell(Quarantine{Size: to - from, Notice: n})
	}
}

// tell tells who asked to hear of it.
func (s *Spool) tell(q Quarantine) {
	if s.cfg.Quarantined != nil {
		s.cfg.Quarantined(q)
	}
}

// quarantine copies bytes into a file of its own, named after where they lay.
// What an earlier life quarantined is not new, and not reported again.
func (s *Spool) quarantine(g *segment, offset int64, n *wire.Notice, why error, chunks ...run) (isNew bool, err error) {
	path := filepath.Join(s.cfg.Dir, quarantineFolder, fmt.Sprintf("%012d-%d.bin", g.number, offset))
	size := int64(0)
	for _, c := range chunks {
		size += c.size
	}
	if info, err := os.Stat(path); err == nil && info.Size() == size {
		return false, nil
	}
	if err := s.copyOut(path+".part", chunks); err != nil {
		_ = os.Remove(path + ".part")
		return false, fmt.Errorf("quarantine: %w", err)
	}
	if err := errors.Join(os.Rename(path+".part", path), s.syncDir(filepath.Dir(path))); err != nil {
		return false, fmt.Errorf("quarantine: %w", err)
	}
	s.mu.Lock()
	s.used += size
	s.mu.Unlock()
	s.report(Quarantine{File: path, Size: size, Notice: n}, why)
	return true, nil
}

func (s *Spool) copyOut(path string, chunks []run) error {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	for _, c := range chunks {
		in, err := os.Open(c.segment.path)
		if err == nil {
			_, err = io.Copy(out, io.NewSectionReader(in, c.offset, c.size))
			err = errors.Join(err, in.Close())
		}
		if err != nil {
			return errors.Join(err, out.Close())
		}
	}
	return errors.Join(s.sync(out), out.Close())
}

func (s *Spool) report(q Quarantine, why error) {
	s.mu.Lock()
	s.stats.Quarantined++
	s.mu.Unlock()
	args := []any{"file", q.File, "bytes", q.Size, "error", why}
	if q.Notice != nil {
		args = append(args, "instrument", q.Notice.Instrument, "key", q.Notice.Key, "receivedAt", q.Notice.ReceivedAt)
	}
	s.cfg.Logger.Error("a corrupt record of the spool is in quarantine: what it holds was receipted and cannot be archived", args...)
}
