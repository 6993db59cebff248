// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/substorm/substorm/internal/wire"
)

// unfinishedCopy ends the name of a file that is on its way into quarantine.
const unfinishedCopy = ".part"

// measureQuarantine counts what earlier incarnations put into quarantine: it stays there until an
// operator removes it.
func (s *Spool) measureQuarantine() error {
	dir := filepath.Join(s.cfg.Dir, quarantineFolder)
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), unfinishedCopy) {
			if err := os.RemoveAll(filepath.Join(dir, f.Name())); err != nil {
				return err
			}
			continue
		}
		info, err := f.Info()
		if err != nil {
			return err
		}
		s.used += info.Size()
		s.stats.Quarantined++
	}
	return nil
}

// moveAside puts an entry of the folder that has a segment's name and is no file into
// quarantine. If it cannot be moved, it stays: nothing is written there.
func (s *Spool) moveAside(f fs.DirEntry) {
	from := filepath.Join(s.cfg.Dir, f.Name())
	to := filepath.Join(s.cfg.Dir, quarantineFolder, f.Name()+"-"+rand.Text()[:8])
	if err := os.Rename(from, to); err != nil {
		s.cfg.Logger.Error("cannot move an entry of the spool's folder that has the name of a segment but is not a file; ignoring it: move it away",
			"path", from, "type", f.Type().String(), "error", err)
		return
	}
	s.stats.Quarantined++
	s.cfg.Logger.Error("moved an entry of the spool's folder that has the name of a segment but is not a file: look at it, and remove it",
		"path", from, "type", f.Type().String(), "to", to)
}

// quarantineSegment moves a file that does not begin as a segment.
func (s *Spool) quarantineSegment(g *segment, why error) error {
	chunk := run{g, 0, g.size}
	to, err := s.quarantinePath(g.number, 0, extension, chunk)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(to); err == nil { // the same bytes, from before
		return os.Remove(g.path)
	}
	q := Quarantine{File: to, Size: g.size}
	if err := s.tell(q, func() error { return errors.Join(os.Rename(g.path, to), s.syncDir(filepath.Dir(to))) }); err != nil {
		return err
	}
	s.used += g.size
	s.report(q, why)
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
	if err := s.quarantine(g, from, n, why, s.tell, run{g, from, to - from}); err != nil {
		s.mu.Lock()
		g.only = true
		s.mu.Unlock()
		s.cfg.Logger.Error("corrupt bytes of the spool cannot be copied into quarantine: the segment's file is the only copy, and stays. Make space on the volume, and restart the pod", "file", g.path,
			"offset", from, "bytes", to-from, "error", err)
	}
}

// tell passes q to Config.Quarantined, which calls keep; without one it calls keep itself.
func (s *Spool) tell(q Quarantine, keep func() error) error {
	if s.cfg.Quarantined == nil {
		return keep()
	}
	return s.cfg.Quarantined(q, keep)
}

// quarantinePath names a file after the place and the contents of its bytes: a segment's number
// comes again once the spool was empty.
func (s *Spool) quarantinePath(number uint64, offset int64, ending string, chunks ...run) (string, error) {
	h := sha256.New()
	if err := copyRuns(h, chunks); err != nil {
		return "", err
	}
	name := fmt.Sprintf("%012d-%d-%x%s", number, offset, h.Sum(nil)[:16], ending)
	return filepath.Join(s.cfg.Dir, quarantineFolder, name), nil
}

// quarantine copies bytes into a file of its own, named after their place and contents, and gives
// it that name by keep, which tell calls. Bytes that an earlier incarnation quarantined are not
// passed to tell, and not reported, again.
func (s *Spool) quarantine(g *segment, offset int64, n *wire.Notice, why error, tell func(q Quarantine, keep func() error) error, chunks ...run) error {
	path, err := s.quarantinePath(g.number, offset, ".bin", chunks...)
	if err != nil {
		return fmt.Errorf("quarantine: %w", err)
	}
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	q := Quarantine{File: path, Notice: n}
	for _, c := range chunks {
		q.Size += c.size
	}
	part := path + unfinishedCopy
	err = s.copyOut(part, chunks)
	if err == nil {
		err = tell(q, func() error { return errors.Join(os.Rename(part, path), s.syncDir(filepath.Dir(path))) })
	}
	if err != nil {
		_ = os.Remove(part)
		return fmt.Errorf("quarantine: %w", err)
	}
	s.mu.Lock()
	s.used += q.Size
	s.mu.Unlock()
	s.report(q, why)
	return nil
}

func (s *Spool) copyOut(path string, chunks []run) error {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	if err := copyRuns(out, chunks); err != nil {
		return errors.Join(err, out.Close())
	}
	return errors.Join(s.sync(out), out.Close())
}

func copyRuns(out io.Writer, chunks []run) error {
	for _, c := range chunks {
		in, err := os.Open(c.segment.path)
		if err == nil {
			_, err = io.Copy(out, io.NewSectionReader(in, c.offset, c.size))
			err = errors.Join(err, in.Close())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Spool) report(q Quarantine, why error) {
	s.mu.Lock()
	s.stats.Quarantined++
	s.mu.Unlock()
	args := []any{"file", q.File, "bytes", q.Size, "error", why}
	if q.Notice != nil {
		args = append(args, "instrument", q.Notice.Instrument, "key", q.Notice.Key, "receivedAt", q.Notice.ReceivedAt)
	}
	s.cfg.Logger.Error("a record of the spool is in quarantine: its contents cannot be archived, and were receipted unless the power was cut while they were written", args...)
}
