// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Source is something to queue.
type Source struct {
	// Name under which people know it.
	Name string
	// Whole is the name where Name is a short one for it; empty: Name is whole.
	Whole string
	// Path of a file; or, where it is none, Open of its bytes.
	Path string
	Open func() (io.ReadCloser, error)
	// Observed is the modification time of the file or the time of Data.
	Observed time.Time
	// Key identifies the file after it was taken; the zero value for files that are never looked up
	// again.
	Key Key
	// Move removes the file from its place. It needs no key.
	Move bool
	// Version, if set, is how a version of a rewritten file is called. It needs a key, and Check is Add's.
	Version *Version
}

func (s Source) open() (io.ReadCloser, error) {
	if s.Path != "" {
		return os.Open(s.Path)
	}
	return s.Open()
}

// addition is a source on its way into the queue.
type addition struct {
	source Source
	entry  Entry
	// from is where its bytes are.
	from string
	// copied: from is a copy of our own.
	copied bool
}

// Add takes sources into the queue. Once it returns, what it returns survives a
// kill and a power cut, and the sources may go. A file that changed while it was
// read, is empty or gone, is left out without an error: it is looked at again.
// The error says which sources could not be taken; others may have been.
func (q *Queue) Add(sources ...Source) ([]Entry, error) {
	q.adding.Lock()
	defer q.adding.Unlock()
	var adding []addition
	var failed []error
	for _, s := range sources {
		a, ok, err := q.prepare(s)
		if err != nil && !gone(s) {
			failed = append(failed, fmt.Errorf("take %s: %w", s.Name, err))
		}
		if IsFull(err) {
			break // the others would only wear the disk
		}
		if ok {
			adding = append(adding, a)
		}
	}
	fresh, err := q.noteVersions(adding)
	if err != nil {
		for _, a := range adding {
			if a.copied {
				err = errors.Join(err, discard(a.from))
			}
		}
		return nil, errors.Join(append(failed, err)...)
	}
	entries, err := q.commit(fresh)
	return entries, errors.Join(append(failed, err)...)
}

// prepare reads a source and sees to it that its bytes are on the disk, in a
// file that only has to be renamed.
func (q *Queue) prepare(s Source) (addition, bool, error) {
	if s.Path != "" && s.Move {
		return q.prepareMove(s)
	}
	return q.prepareCopy(s)
}

func gone(s Source) bool {
	if s.Path == "" {
		return false
	}
	_, err := os.Stat(s.Path)
	return errors.Is(err, fs.ErrNotExist)
}

// copyPath is the path of a copy until it is complete.
func (q *Queue) copyPath(number uint32) string {
	return q.path(folderIncoming, strconv.FormatUint(uint64(number), 16))
}

// discard removes a copy, if it was begun.
func discard(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (q *Queue) prepareMove(s Source) (addition, bool, error) {
	f, err := openToSync(s.Path)
	if err != nil {
		return addition{}, false, err
	}
	e, err := q.describe(f, s.Name)
	if err := errors.Join(err, f.Close()); err != nil {
		return addition{}, false, err
	}
	if e.Size == 0 || e.Millis != clampMillis(s.Observed) {
		return addition{}, false, nil
	}
	return addition{source: s, entry: e, from: s.Path}, true, nil
}

func (q *Queue) prepareCopy(s Source) (addition, bool, error) {
	path := q.copyPath(q.next())
	size, digest, err := q.copyTo(path, s)
	if err != nil || size == 0 {
		return addition{}, false, errors.Join(err, discard(path))
	}
	if s.Path != "" {
		if info, err := os.Stat(s.Path); err != nil || info.Size() != size || !info.ModTime().Equal(s.Observed) {
			return addition{}, false, errors.Join(err, discard(path))
		}
	}
	return addition{source: s, entry: q.entry(s.Name, s.Observed, size, digest), from: path, copied: true}, true, nil
}

func (q *Queue) copyTo(path string, s Source) (size int64, sum [sha256.Size]byte, err error) {
	in, err := s.open()
	if err != nil {
		return 0, sum, err
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o640)
	if err != nil {
		return 0, sum, err
	}
	defer out.Close()
	digest := sha256.New()
	size, err = io.Copy(io.MultiWriter(out, digest), in)
	if err == nil && !q.cfg.Unsafe {
		err = out.Sync()
	}
	return size, [sha256.Size]byte(digest.Sum(nil)), errors.Join(err, out.Close())
}

// commit renames what was prepared, all of it with one sync of each folder, and writes
// down what was taken. If the sync of the queue's folder fails, copies are removed, and their
// sources are looked at again; a file that was moved has its bytes in the queue alone, and is taken.
func (q *Queue) commit(adding []addition) ([]Entry, error) {
	var failed []error
	var entered []addition
	for _, a := range adding {
		copied, err := false, q.keepName(a.entry, a.source.Whole)
		if err == nil {
			copied, err = q.enter(a)
		}
		if err != nil {
			err = errors.Join(err, q.forgetName(a.entry))
			failed = append(failed, fmt.Errorf("take %s: %w", a.source.Name, err))
			continue
		}
		a.copied = copied
		entered = append(entered, a)
	}
	if len(entered) == 0 {
		return nil, errors.Join(failed...)
	}
	if err := q.sync(q.path(folderObjects)); err != nil {
		failed = append(failed, fmt.Errorf("sync %s (nothing is taken without it): %w", q.path(folderObjects), err))
		entries, err := q.leave(entered)
		return entries, errors.Join(append(failed, err)...)
	}
	entries, err := q.finish(entered)
	return entries, errors.Join(append(failed, err)...)
}

// leave removes copies whose entries may not survive a power cut: their sources are still
// there. A file that was moved has its bytes here alone: it is an entry, and sent.
func (q *Queue) leave(entered []addition) (entries []Entry, err error) {
	var failed []error
	for _, a := range entered {
		if a.copied {
			failed = append(failed, discard(q.objectPath(a.entry)))
			continue
		}
		entries = append(entries, a.entry)
	}
	return entries, errors.Join(failed...)
}

// finish writes down what was taken, and removes what was copied and is to be moved.
func (q *Queue) finish(entered []addition) (entries []Entry, err error) {
	var failed []error
	var taken []Record
	var leftovers []string
	left := map[string]bool{}
	now := time.Now().UTC()
	for _, a := range entered {
		entries = append(entries, a.entry)
		switch {
		case a.source.Move && a.copied:
			leftovers = append(leftovers, a.source.Path)
		case a.source.Move:
			left[filepath.Dir(a.source.Path)] = true
		case a.source.Key != (Key{}):
			taken = append(taken, Record{Type: TypeTaken, At: now, Key: hex.EncodeToString(a.source.Key[:]), Path: a.source.Path})
		}
	}
	for dir := range left {
		failed = append(failed, q.sync(dir))
	}
	if len(taken) > 0 {
		q.mu.Lock()
		failed = append(failed, q.journal.write(taken...))
		q.mu.Unlock()
	}
	for _, path := range leftovers { // a kill before that: it is taken, and sent, twice
		failed = append(failed, os.Remove(path))
	}
	return entries, errors.Join(failed...)
}

// enter makes an addition's bytes an entry. A file that cannot be renamed, being
// on another disk, is copied.
func (q *Queue) enter(a addition) (copied bool, err error) {
	if err := rename(a.from, q.objectPath(a.entry)); err == nil || a.copied {
		return a.copied, err
	}
	path := q.copyPath(a.entry.Number)
	size, digest, err := q.copyTo(path, a.source)
	if err == nil && (size != a.entry.Size || !a.entry.Matches(digest)) {
		err = errors.New("it changed while it was taken")
	}
	if err == nil {
		err = rename(path, q.objectPath(a.entry))
	}
	if err != nil {
		return false, errors.Join(err, discard(path))
	}
	return true, nil
}
