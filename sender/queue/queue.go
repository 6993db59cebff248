// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Folders and files of a queue.
const (
	folderObjects  = "objects"
	folderIncoming = "incoming"
	fileFormat     = "format"
	fileLock       = "lock"
	fileID         = "id"
)

// formatLine is all that the file format says.
const formatLine = "substorm queue 1\n"

// Folders for entries that are set aside.
const (
	// Refused: no gateway will take it.
	Refused = "refused"
	// Damaged: it has other bytes than were queued.
	Damaged = "damaged"
)

// Errors of Open.
var (
	// ErrInUse: another process has the queue.
	ErrInUse = errors.New("another process uses the queue")
	// ErrNoQueue: the folder holds something else.
	ErrNoQueue = errors.New("the folder is not empty, and is not a queue")
)

// Config says where a queue is.
type Config struct {
	Dir string
	// Unsafe leaves syncs out. It is there for the test that shows that they matter.
	Unsafe bool
}

// Queue is an open queue. Its methods may be called from many goroutines.
type Queue struct {
	cfg  Config
	lock *os.File
	id   string

	adding sync.Mutex // held by Add, which may copy for long

	mu      sync.Mutex
	number  uint32 // of the last entry
	journal journal
	waiting []Entry // found at Open
	report  Report

	// syncFolder makes renames in a folder survive a power cut; tests have it fail.
	syncFolder func(dir string) error
}

// Report says what Open found.
type Report struct {
	// Owed entries and their bytes.
	Owed      int
	OwedBytes int64
	// Adopted files lay in objects under names of their own.
	Adopted int
	// BadRecords of the journal were passed over: what they said was taken is
	// sent again.
	BadRecords int
}

// Open opens a queue and creates it if it does not exist. Errors: ErrInUse, ErrNoQueue,
// ErrNewerFormat, or the file system's.
func Open(cfg Config) (*Queue, error) {
	q := &Queue{cfg: cfg, syncFolder: syncFolder}
	if err := q.open(); err != nil {
		_ = q.closeFiles()
		return nil, fmt.Errorf("queue %s: %w", cfg.Dir, err)
	}
	return q, nil
}

func (q *Queue) open() error {
	if err := os.MkdirAll(q.cfg.Dir, 0o750); err != nil {
		return err
	}
	if err := q.sync(filepath.Dir(filepath.Clean(q.cfg.Dir))); err != nil {
		return err
	}
	if err := q.claim(); err != nil {
		return err
	}
	if err := os.RemoveAll(q.path(folderIncoming)); err != nil {
		return err
	}
	for _, name := range []string{folderObjects, folderIncoming, folderNames, Refused, Damaged} {
		if err := os.Mkdir(q.path(name), 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if err := q.sync(q.cfg.Dir); err != nil {
		return err
	}
	if err := q.name(); err != nil {
		return err
	}
	bad, err := q.journal.open(q.path(fileJournal), q.cfg.Unsafe)
	if err != nil {
		return err
	}
	q.report.BadRecords = bad
	if err := q.find(); err != nil {
		return err
	}
	return q.forgetNames()
}

// claim takes the lock and checks whose folder it is.
func (q *Queue) claim() error {
	format, err := os.ReadFile(q.path(fileFormat))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := q.unused(); err != nil {
			return err
		}
	case err != nil:
		return err
	case string(format) != formatLine:
		return fmt.Errorf("its format is %.40q: %w", format, ErrNewerFormat)
	}
	q.lock, err = os.OpenFile(q.path(fileLock), os.O_CREATE|os.O_RDWR, 0o640)
	if err != nil {
		return err
	}
	if ours, err := lockFile(q.lock); err != nil || !ours {
		return errors.Join(err, ErrInUse)
	}
	if format != nil {
		return nil
	}
	// First the list that is empty: a queue without one is of an older version.
	if err := q.writeFile(fileWatched, nil); err != nil {
		return err
	}
	return q.writeFile(fileFormat, []byte(formatLine))
}

// name reads who the queue is, and draws it once.
func (q *Queue) name() error {
	id, err := os.ReadFile(q.path(fileID))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if q.id = strings.TrimSpace(string(id)); idForm.MatchString(q.id) {
		return nil
	}
	b := make([]byte, 8)
	_, _ = rand.Read(b) // never fails
	q.id = hex.EncodeToString(b)
	return q.writeFile(fileID, []byte(q.id+"\n"))
}

var idForm = regexp.MustCompile(`^[0-9a-f]{16}$`)

// ID identifies the queue, for as long as its folder exists: 16 hexadecimal digits.
func (q *Queue) ID() string { return q.id }

// unused returns ErrNoQueue where the folder holds anything but what a start
// that was cut short leaves.
func (q *Queue) unused() error {
	entries, err := os.ReadDir(q.cfg.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); name != fileLock && name != fileFormat+".new" && strings.TrimSuffix(name, ".new") != fileWatched && name != "lost+found" {
			return ErrNoQueue
		}
	}
	return nil
}

// writeFile writes a small file at once, or not at all.
func (q *Queue) writeFile(name string, data []byte) error {
	temporary := q.path(name + ".new")
	if err := q.writeSynced(temporary, data); err != nil {
		return err
	}
	if err := rename(temporary, q.path(name)); err != nil {
		return err
	}
	return q.sync(q.cfg.Dir)
}

// writeSynced writes a small file that is renamed afterwards.
func (q *Queue) writeSynced(path string, data []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && !q.cfg.Unsafe {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// find lists what is owed, and the greatest number in use.
func (q *Queue) find() error {
	for _, folder := range []string{Refused, Damaged, folderObjects} {
		files, err := os.ReadDir(q.path(folder))
		if err != nil {
			return err
		}
		var foreign []string
		for _, f := range files {
			e, ok := ParseFile(f.Name())
			if ok {
				q.number = max(q.number, e.Number)
			}
			if folder != folderObjects || !f.Type().IsRegular() {
				continue
			}
			if !ok {
				foreign = append(foreign, f.Name())
				continue
			}
			info, err := f.Info()
			if err != nil {
				return err
			}
			e.Size = info.Size()
			q.owe(e)
		}
		for _, name := range foreign {
			if err := q.adopt(name); err != nil {
				return err
			}
		}
	}
	slices.SortFunc(q.waiting, func(a, b Entry) int {
		if a.Before(b) {
			return -1
		}
		return 1
	})
	return nil
}

func (q *Queue) owe(e Entry) {
	q.waiting = append(q.waiting, e)
	q.report.Owed++
	q.report.OwedBytes += e.Size
}

// adopt makes an entry of a file that was put into objects by hand.
func (q *Queue) adopt(name string) error {
	if strings.HasPrefix(name, ".") {
		return nil
	}
	path := q.path(folderObjects, name)
	f, err := openToSync(path)
	if err != nil {
		return err
	}
	defer f.Close()
	e, err := q.describe(f, name)
	if err != nil || e.Size == 0 {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := rename(path, q.objectPath(e)); err != nil {
		return err
	}
	q.owe(e)
	q.report.Adopted++
	return q.sync(q.path(folderObjects))
}

// describe reads a file to its end, syncs it and makes its entry.
func (q *Queue) describe(f *os.File, name string) (Entry, error) {
	digest := sha256.New()
	size, err := io.Copy(digest, f)
	if err != nil {
		return Entry{}, err
	}
	if !q.cfg.Unsafe {
		if err := f.Sync(); err != nil {
			return Entry{}, err
		}
	}
	info, err := f.Stat()
	if err != nil {
		return Entry{}, err
	}
	return q.entry(name, info.ModTime(), size, [sha256.Size]byte(digest.Sum(nil))), nil
}

func (q *Queue) entry(name string, observed time.Time, size int64, digest [sha256.Size]byte) Entry {
	return Entry{Millis: clampMillis(observed), Number: q.next(), Check: checkOf(digest), Size: size, Name: cleanName(name)}
}

func (q *Queue) next() uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.number++
	return q.number
}

func (q *Queue) path(parts ...string) string {
	return filepath.Join(append([]string{q.cfg.Dir}, parts...)...)
}

func (q *Queue) objectPath(e Entry) string { return q.path(folderObjects, e.File()) }

func (q *Queue) sync(dir string) error {
	if q.cfg.Unsafe {
		return nil
	}
	return q.syncFolder(dir)
}

// Report says what Open found.
func (q *Queue) Report() Report { return q.report }

// Waiting returns what was owed when the queue was opened, in the order of time,
// once.
func (q *Queue) Waiting() []Entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.waiting
	q.waiting = nil
	return w
}

// Open opens an entry's bytes.
func (q *Queue) Open(e Entry) (*os.File, error) { return os.Open(q.objectPath(e)) }

// Done removes an entry: it has its receipt. That is not synced; what a power
// cut brings back is sent again.
func (q *Queue) Done(e Entry) error {
	return errors.Join(discard(q.objectPath(e)), q.forgetName(e), q.Note(e, ""))
}

// SetAside moves an entry to the folder Refused or Damaged, where it stays, and
// writes down why.
func (q *Queue) SetAside(e Entry, folder, reason string) error {
	if err := rename(q.objectPath(e), q.path(folder, e.File())); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return errors.Join(q.sync(q.path(folder)), q.sync(q.path(folderObjects)), q.Note(e, ""),
		q.journal.write(Record{Type: TypeAside, At: time.Now().UTC(), Entry: folder + "/" + e.File(), Reason: reason}))
}

// Spent returns the day that was last noted, and its bytes.
func (q *Queue) Spent() (day string, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.journal.spent.Day, q.journal.spent.Bytes
}

// NoteSpent writes down how many bytes count for a day. A kill does not lose it,
// a power cut may lose what was noted since the last file was taken.
func (q *Queue) NoteSpent(day string, bytes int64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.journal.append(Record{Type: TypeSpent, At: time.Now().UTC(), Day: day, Bytes: bytes})
}

// Close ends the use of the queue.
func (q *Queue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return errors.Join(q.journal.flush(), q.closeFiles())
}

func (q *Queue) closeFiles() error {
	err := q.journal.close()
	if q.lock != nil {
		err = errors.Join(err, q.lock.Close())
	}
	return err
}
