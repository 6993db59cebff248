// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/substorm/substorm/sender/queue"
)

// ignored are names of files that are being written, or are none of the
// instrument's: patterns as path.Match has them.
var ignored = []string{".*", "*~", "*.tmp", "*.temp", "*.part", "*.partial", "*.filepart", "*.swp", "*.lock"}

// ignored are the patterns of names that are not sent from watched folders.
func (cfg *Config) ignored() []string {
	return append(ignored[:len(ignored):len(ignored)], cfg.Queue.Ignore...)
}

// versionTime is how a name says when a version of a file was written, in UTC: by milliseconds, and with characters that all file systems take.
const versionTime = "20060102T150405.000Z"

// rewrites reports whether files of this name are rewritten.
func (c *QueueConfig) rewrites(base string) bool {
	return slices.ContainsFunc(c.Rewritten, func(pattern string) bool { ok, err := filepath.Match(pattern, base); return ok && err == nil })
}

// clockSet is a time before which no file was written: a clock without a battery begins at 1970, 1980 or 2000.
var clockSet = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)

// maxAhead is how far a file's time may be ahead: it may be local time.
const maxAhead = 24 * time.Hour

// versionName is the path of the version of a rewritten file that was written at a time, when names of earlier versions have times up to
// last. If the clock behind the written time was not set, or is more than maxAhead ahead, or its time is not later, as with a camera that
// dates all files alike, the name has the current time. If the current time is not later either, the name also has the beginning of the
// version's key: no version has the name of an earlier one.
func versionName(rel string, written, now, last time.Time, key queue.Key) (name string, newLast time.Time) {
	at, apart := written.Truncate(time.Millisecond), ""
	ahead := now.After(clockSet) && at.After(now.Add(maxAhead))
	if at.Before(clockSet) || ahead || !at.After(last) {
		at = now.Truncate(time.Millisecond)
	}
	if !at.After(last) {
		apart = "-" + hex.EncodeToString(key[:4])
	} else {
		last = at
	}
	suffix := filepath.Ext(filepath.Base(rel))
	return strings.TrimSuffix(rel, suffix) + "-" + at.UTC().Format(versionTime) + apart + suffix, last
}

// maxYear is the last one that the journal can write.
const maxYear = 9999

// version is the name of the version of a rewritten file at a path: the earlier name if it was named before a kill.
func (w *watcher) version(path, rel string, written time.Time, key queue.Key) *queue.Version {
	v := w.queue.Version(path)
	if v.Key != key {
		v = queue.Version{Last: v.Last, Key: key}
		v.Name, v.Last = versionName(rel, written, w.now(), v.Last, key)
	}
	if v.Written = written; written.Year() > maxYear {
		v.Written = time.Time{}
	}
	return &v
}

// watcher takes new files of folders into a queue. It polls instead of waiting for notifications:
// polling works on every file system, shared ones included.
type watcher struct {
	dirs []string
	// ignore are patterns of names.
	ignore []string
	// settle is how long a file must not change to be whole.
	settle time.Duration
	// move takes files away; else they stay, and are known by name, size and time.
	move  bool
	queue *queue.Queue
	// queueName is what the queue calls the file at a path below a folder, as queue.Source has it.
	queueName func(rel string) (name, whole string)
	// rewrites reports whether files of this name are rewritten: each version is an object of its own.
	rewrites func(base string) bool
	// took is called with what is in the queue.
	took func([]queue.Entry)
	now  func() time.Time
	log  *slog.Logger

	// seen files that have not settled, by path.
	seen map[string]look
	// silent are folders whose trouble was logged.
	silent map[string]string
	// away are folders that were not there when a person could have been asked about them, and why one is not taken that is there by now.
	away map[string]error
	// confirm says why nothing of a folder may be taken.
	confirm func(dir string) error
}

// look is what was seen of a file, and since when it is so.
type look struct {
	size    int64
	written time.Time
	// version is the version argument of queue.KeyOf.
	version int64
	since   time.Time
}

// A batch is synced together, and can be sent once it is.
const (
	batchFiles = 64
	batchBytes = 16 << 20
)

// scan looks through all folders once. With remember it tidies up what the queue
// knows of files that are gone. It returns false where not all could be looked at.
func (w *watcher) scan(ctx context.Context, remember bool) bool {
	s := scanning{watcher: w, ctx: ctx, seen: map[string]look{}}
	if remember {
		s.present = map[queue.Key]struct{}{}
	}
	whole := true
	for _, dir := range w.dirs {
		if err := w.confirmArrived(dir); err != nil {
			whole = w.mention(dir, err) && whole
			continue
		}
		err := filepath.WalkDir(walkRoot(dir), s.visit)
		err = errors.Join(err, s.flush())
		if ctx.Err() != nil {
			return false
		}
		whole = w.mention(dir, errors.Join(append(s.failures, err)...)) && whole
		s.failures = nil
	}
	w.seen = s.seen
	if remember && whole {
		whole = w.mention("journal", w.queue.Compact(s.present, w.now()))
	}
	return whole
}

// confirmArrived looks through a folder that was away, when it is there for the first time, and says why it is not taken.
func (w *watcher) confirmArrived(dir string) error {
	err, away := w.away[dir]
	if !away || err != nil {
		return err
	}
	if _, err := os.Stat(dir); err != nil {
		return nil // the scan reports it
	}
	if err := w.confirm(dir); err != nil {
		w.away[dir] = err
		return err
	}
	delete(w.away, dir)
	return nil
}

// mention logs what is wrong with a folder, once until it changes.
func (w *watcher) mention(dir string, err error) bool {
	text := ""
	if err != nil {
		text, _, _ = strings.Cut(err.Error(), "\n") // the first says enough
		_, text, _ = strings.Cut(text, ": ")        // whichever file it was
	}
	if w.silent == nil {
		w.silent = map[string]string{}
	}
	if text != w.silent[dir] {
		w.silent[dir] = text
		if err != nil {
			w.log.Error("cannot take all files", "folder", dir, "error", err)
		} else {
			w.log.Info("all files can be taken again", "folder", dir)
		}
	}
	return err == nil
}

// scanning is one scan.
type scanning struct {
	*watcher
	ctx     context.Context
	seen    map[string]look
	present map[queue.Key]struct{}

	batch []queue.Source
	bytes int64
	// failures are the first ones: what cannot be taken does not keep the rest.
	failures []error
}

// shownFailed is how many failures of a scan are logged.
const shownFailed = 5

// fail records an error. It returns an error, which ends the scan, only if the disk is full.
func (s *scanning) fail(err error) error {
	if queue.IsFull(err) {
		return err
	}
	if err != nil && len(s.failures) < shownFailed {
		s.failures = append(s.failures, err)
	}
	return nil
}

func (s *scanning) visit(path string, d fs.DirEntry, err error) error {
	switch {
	case s.ctx.Err() != nil:
		return s.ctx.Err()
	case errors.Is(err, fs.ErrNotExist) && d != nil && path != s.root(path):
		return nil // it went while we looked
	case err != nil && (d == nil || path == s.root(path)):
		return err
	case err != nil: // a folder that cannot be read
		return s.fail(err)
	case d.IsDir():
		if path != s.root(path) && s.ignores(d.Name()) {
			return fs.SkipDir
		}
		return nil
	case s.ignores(d.Name()):
		return nil
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && path != s.root(path) {
		return nil
	}
	if err != nil {
		return s.fail(err)
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	return s.file(path, info)
}

// root is the watched folder itself, where path is one.
func (s *scanning) root(path string) string {
	for _, dir := range s.dirs {
		if filepath.Clean(dir) == filepath.Clean(path) {
			return path
		}
	}
	return ""
}

func (s *scanning) ignores(name string) bool {
	return slices.ContainsFunc(s.ignore, func(pattern string) bool {
		ok, err := filepath.Match(pattern, name)
		return ok && err == nil
	})
}

// file puts a file into the batch if it is new, has bytes and has settled.
func (s *scanning) file(path string, info fs.FileInfo) error {
	rel, version, rewritten := s.name(path), int64(0), s.watcher.rewrites(filepath.Base(path))
	if rewritten {
		version = changed(info)
	}
	key := queue.KeyOf(path, info.Size(), info.ModTime(), version)
	if s.present != nil {
		s.present[key] = struct{}{}
	}
	if info.Size() == 0 || s.queue.Taken(key) {
		return nil
	}
	current := look{info.Size(), info.ModTime(), version, s.now()}
	if before, ok := s.watcher.seen[path]; ok && before.size == current.size && before.written.Equal(current.written) && before.version == current.version {
		current.since = before.since
	}
	if s.now().Sub(current.since) < s.settle {
		s.seen[path] = current
		return nil
	}
	source := queue.Source{Path: path, Observed: info.ModTime(), Key: key, Move: s.move}
	if rewritten {
		source.Version = s.version(path, rel, info.ModTime(), key)
		rel = source.Version.Name
	}
	source.Name, source.Whole = s.queueName(rel)
	s.batch = append(s.batch, source)
	if s.bytes += info.Size(); len(s.batch) >= batchFiles || s.bytes >= batchBytes {
		return s.flush()
	}
	return nil
}

// name is the path below the watched folder.
func (s *scanning) name(path string) string {
	for _, dir := range s.dirs {
		if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
			return rel
		}
	}
	return filepath.Base(path)
}

func (s *scanning) flush() error {
	if len(s.batch) == 0 {
		return nil
	}
	entries, err := s.queue.Add(s.batch...)
	s.batch, s.bytes = nil, 0
	if len(entries) > 0 {
		s.took(entries)
	}
	return s.fail(err)
}

// checkFolders finds folders that cannot be watched.
func checkFolders(dirs []string, queueDir string) error {
	inside, err := resolve(queueDir)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		outside, err := resolve(dir)
		if err != nil {
			return err
		}
		if rel, err := filepath.Rel(outside, inside); err == nil && filepath.IsLocal(rel) {
			return fmt.Errorf("the queue %s lies in the watched folder %s: put it elsewhere", queueDir, dir)
		}
	}
	return nil
}

// resolve is the absolute path without symbolic links, also of what is not there yet.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(path)
	if parent := filepath.Dir(path); errors.Is(err, fs.ErrNotExist) && parent != path {
		real, err = resolve(parent)
		return filepath.Join(real, filepath.Base(path)), err
	}
	return real, err
}
