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

// measureQuarantine counts what earlier lives put into quarantine: it stays
// there until somebody looks at it.
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

// moveAside puts what has a segment's name and is no file into quarantine. Where
// it cannot be moved it stays: nothing is written there.
func (s *Spool) moveAside(f fs.DirEntry) {
	from := filepath.Join(s.cfg.Dir, f.Name())
	to := filepath.Join(s.cfg.Dir, quarantineFolder, f.Name()+"-"+rand.Text()[:8])
	if err := os.Rename(from, to); err != nil {
		s.cfg.Logger.Error("in the spool's folder lies what has the name of a segment and is no file: it is left out; move it away",
			"path", from, "type", f.Type().String(), "error", err)
		return
	}
	s.stats.Quarantined++
	s.cfg.Logger.Error("in the spool's folder lay what has the name of a segment and is no file: it was moved; look at it, and remove it",
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
	if err := errors.Join(os.Rename(g.path, to), s.syncDir(filepath.Dir(to))); err != nil {
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
		s.mu.Lock()
		g.only = true
		s.mu.Unlock()
		s.cfg.Logger.Error("corrupt bytes of the spool cannot be copied into quarantine: the segment's file is the only copy, and stays. Make room on the volume, and restart the pod", "file", g.path,
			"offset", from, "bytes", to-from, "error", err)
	}
	if isNew { // where there is no room it is told of by the life that finds some
		s.tell(Quarantine{Size: to - from, Notice: n})
	}
}

// tell tells who asked to hear of it.
func (s *Spool) tell(q Quarantine) {
	if s.cfg.Quarantined != nil {
		s.cfg.Quarantined(q)
	}
}

// quarantinePath names a file after where its bytes lay and what they are: a
// segment's number comes again once the spool was empty.
func (s *Spool) quarantinePath(number uint64, offset int64, ending string, chunks ...run) (string, error) {
	h := sha256.New()
	if err := copyRuns(h, chunks); err != nil {
		return "", err
	}
	name := fmt.Sprintf("%012d-%d-%x%s", number, offset, h.Sum(nil)[:16], ending)
	return filepath.Join(s.cfg.Dir, quarantineFolder, name), nil
}

// quarantine copies bytes into a file of its own, named after where they lay
// and what they are. What an earlier life quarantined is not new, and not
// reported again.
func (s *Spool) quarantine(g *segment, offset int64, n *wire.Notice, why error, chunks ...run) (isNew bool, err error) {
	path, err := s.quarantinePath(g.number, offset, ".bin", chunks...)
	if err != nil {
		return false, fmt.Errorf("quarantine: %w", err)
	}
	if _, err := os.Lstat(path); err == nil {
		return false, nil
	}
	part := path + unfinishedCopy
	if err := s.copyOut(part, chunks); err != nil {
		_ = os.Remove(part)
		return false, fmt.Errorf("quarantine: %w", err)
	}
	if err := errors.Join(os.Rename(part, path), s.syncDir(filepath.Dir(path))); err != nil {
		return false, fmt.Errorf("quarantine: %w", err)
	}
	size := int64(0)
	for _, c := range chunks {
		size += c.size
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
	s.cfg.Logger.Error("a corrupt record of the spool is in quarantine: what it holds cannot be archived, and was receipted unless the power was cut while it was written", args...)
}
