// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const fileJournal = "journal"

// keySize is the size of a Key in bytes: enough that two of them never meet.
const keySize = 16

// Key identifies a version of a file.
type Key [keySize]byte

// KeyOf returns the key of a file of so many bytes that was last written at a time. Version distinguishes two versions of a path with equal
// size and time; 0 if it is not known.
func KeyOf(path string, size int64, written time.Time, version int64) Key {
	h := sha256.New()
	fmt.Fprintf(h, "%d %d %s", size, written.UnixNano(), path)
	if version != 0 {
		fmt.Fprintf(h, "\x00%d", version)
	}
	return Key(h.Sum(nil)[:keySize])
}

// journal is the file of records.
type journal struct {
	path   string
	unsafe bool
	file   *os.File
	taken  map[Key]struct{}
	// versions are the last record of TypeVersion of each path.
	versions map[string]Record
	spent    Record
	// records in the file, including obsolete ones.
	records int
}

// open reads the journal, cuts off what a kill left of a last record, and opens
// it for more.
func (j *journal) open(path string, unsafe bool) (bad int, err error) {
	j.path, j.unsafe, j.taken, j.versions = path, unsafe, map[Key]struct{}{}, map[string]Record{}
	j.file, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o640)
	if err != nil {
		return 0, err
	}
	bad, err = readRecords(j.file, func(r Record, _ []byte) error {
		j.records++
		j.see(r)
		return nil
	})
	if err != nil {
		return bad, fmt.Errorf("read the journal: %w", err)
	}
	return bad, j.cutTail()
}

func (j *journal) see(r Record) {
	switch r.Type {
	case TypeTaken:
		if key, err := hex.DecodeString(r.Key); err == nil {
			j.taken[Key(key)] = struct{}{}
		}
	case TypeVersion:
		j.versions[inJSON(r.Path)] = r
	case TypeSpent:
		j.spent = r
	}
}

// inJSON is a path as a record has it: JSON has U+FFFD in place of each byte that is no UTF-8.
func inJSON(path string) string { return string([]rune(path)) }

func (j *journal) cutTail() error {
	info, err := j.file.Stat()
	if err != nil {
		return err
	}
	tail := make([]byte, min(info.Size(), maxRecord))
	if _, err := j.file.ReadAt(tail, info.Size()-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	whole := int64(bytes.LastIndexByte(tail, '\n') + 1)
	if whole == int64(len(tail)) {
		return nil
	}
	return j.file.Truncate(info.Size() - int64(len(tail)) + whole)
}

// append writes records, as yet without a sync.
func (j *journal) append(records ...Record) error {
	var text []byte
	for _, r := range records {
		line, err := r.Encode()
		if err != nil {
			return err
		}
		text = append(text, line...)
	}
	if _, err := j.file.Write(text); err != nil {
		return fmt.Errorf("write the journal: %w", errors.Join(err, j.cutTail()))
	}
	j.records += len(records)
	for _, r := range records {
		j.see(r)
	}
	return nil
}

// write appends records and syncs them.
func (j *journal) write(records ...Record) error {
	if err := j.append(records...); err != nil {
		return err
	}
	return j.flush()
}

func (j *journal) flush() error {
	if j.unsafe || j.file == nil {
		return nil
	}
	return j.file.Sync()
}

func (j *journal) close() error {
	if j.file == nil {
		return nil
	}
	return j.file.Close()
}

// keepTaken is how long a file that is gone from its folder stays known: a disk or a share that was
// away for a week must not be sent again.
const keepTaken = 7 * 24 * time.Hour

// keepVersions is for how many paths the last version stays known, however long its file is gone: a camera that dates all files alike may
// be off for a winter. If there are more paths, those that are gone for longer than keepTaken are forgotten: their names are not used
// again.
const keepVersions = 10_000

// forgetVersions forgets what no file has to be told apart from any more.
func (j *journal) forgetVersions(present map[Key]struct{}, now time.Time) {
	if len(j.versions) <= keepVersions {
		return
	}
	maps.DeleteFunc(j.versions, func(_ string, r Record) bool {
		_, there := present[keyOf(r)]
		return !there && now.Sub(r.At) >= keepTaken
	})
}

// keyOf is the key of a record; the zero value where it has none.
func keyOf(r Record) Key {
	var key Key
	if n, err := hex.Decode(key[:], []byte(r.Key)); err != nil || n != keySize {
		return Key{}
	}
	return key
}

// compact rewrites the journal without files that are no longer present, if they were taken long
// before now, and without records that newer records replace.
func (j *journal) compact(present map[Key]struct{}, now time.Time) error {
	temporary, err := os.Create(j.path + ".new")
	if err != nil {
		return err
	}
	defer temporary.Close()
	kept, n, err := j.copyTo(temporary, present, now)
	if err == nil && !j.unsafe {
		err = temporary.Sync()
	}
	if err := errors.Join(err, temporary.Close()); err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	if err := j.file.Close(); err != nil {
		return err
	}
	if err := rename(j.path+".new", j.path); err != nil {
		return err
	}
	j.file, err = os.OpenFile(j.path, os.O_RDWR|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	j.taken, j.records = kept, n
	if j.unsafe {
		return nil
	}
	return syncFolder(filepath.Dir(j.path))
}

// copyTo writes the records that still say something.
func (j *journal) copyTo(to io.Writer, present map[Key]struct{}, now time.Time) (kept map[Key]struct{}, n int, err error) {
	if _, err := j.file.Seek(0, io.SeekStart); err != nil {
		return nil, 0, err
	}
	kept = map[Key]struct{}{}
	out := bufio.NewWriter(to)
	_, err = readRecords(j.file, func(r Record, line []byte) error {
		recent := now.Sub(r.At) < keepTaken
		switch r.Type {
		case TypeTaken:
			text, err := hex.DecodeString(r.Key)
			if err != nil {
				return nil
			}
			key := Key(text)
			_, there := present[key]
			if _, again := kept[key]; again || !there && !recent {
				return nil
			}
			kept[key] = struct{}{}
		case TypeSpent, TypeVersion:
			return nil
		default:
			if !recent {
				return nil
			}
		}
		n++
		_, err := out.Write(line)
		return err
	})
	j.forgetVersions(present, now)
	rest := slices.Collect(maps.Values(j.versions))
	if j.spent.Day != "" {
		rest = append(rest, j.spent)
	}
	for _, r := range rest {
		line, failed := r.Encode()
		if err = errors.Join(err, failed); err == nil {
			n++
			_, err = out.Write(line)
		}
	}
	return kept, n, errors.Join(err, out.Flush())
}

// Compact shrinks the journal if it has grown. Present are the files in the watched folders.
func (q *Queue) Compact(present map[Key]struct{}, now time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.journal.records < 1000 || q.journal.records < 2*len(present) {
		return nil
	}
	if err := q.journal.compact(present, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("rewrite the journal: %w", err)
	}
	return nil
}

// Taken reports whether a file was taken before.
func (q *Queue) Taken(key Key) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, ok := q.journal.taken[key]
	return ok
}

// Version returns the last named version of the file at a path; the zero value if there is none.
func (q *Queue) Version(path string) Version {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.version(path)
}

// version is Version. The caller holds mu.
func (q *Queue) version(path string) Version {
	r, ok := q.journal.versions[inJSON(path)]
	if !ok {
		return Version{}
	}
	v := *r.Version
	v.Key = keyOf(r)
	return v
}

// noteVersions records the names of versions of rewritten files, so that each version keeps its name across interruptions, and the next one
// has another. It returns the additions without files that were taken before: they were touched, and not written.
func (q *Queue) noteVersions(adding []addition) ([]addition, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now().UTC()
	var fresh []addition
	var records []Record
	for _, a := range adding {
		v := a.source.Version
		if v == nil {
			fresh = append(fresh, a)
			continue
		}
		was := q.version(a.source.Path)
		_, taken := q.journal.taken[was.Key]
		key := hex.EncodeToString(a.source.Key[:])
		if taken && was.Check == a.entry.Check && was.Written.Equal(v.Written) && !a.source.Move {
			records = append(records, Record{Type: TypeVersion, At: now, Key: key, Path: a.source.Path, Version: &was}, Record{Type: TypeTaken, At: now, Key: key, Path: a.source.Path})
			if err := discard(a.from); err != nil {
				return nil, err
			}
			continue
		}
		noted := *v
		noted.Check = a.entry.Check
		records = append(records, Record{Type: TypeVersion, At: now, Key: key, Path: a.source.Path, Version: &noted})
		fresh = append(fresh, a)
	}
	if len(records) == 0 {
		return fresh, nil
	}
	return fresh, q.journal.write(records...)
}
