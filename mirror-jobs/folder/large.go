// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/substorm/substorm/internal/mirrorindex"
)

// Large is an object that comes in parts of PartSize, in any order. If a run is killed, the parts that came are kept, except for the
// last noteEvery parts and those that are on their way. Its methods may be called from several goroutines.
type Large struct {
	// Before is called when the bytes are known to be the object's, before its file gets its path. Optional.
	Before func() error

	of         *Folder
	instrument string
	entry      *mirrorindex.Entry
	name       string
	file       *os.File
	digest     digesting
	notes      sync.WaitGroup

	mu   sync.Mutex
	done map[int]bool
	// noted parts are in the note or in one that is under way, which noting says; noteErr ended that.
	noted   int
	noting  bool
	noteErr error
}

const (
	// PartSize is the size of a part, in bytes; the last one is shorter.
	PartSize = 8 << 20
	// noteEvery is after how many more parts the parts that came are noted: 32 MiB. At most that much of an object is received again
	// after a kill, which takes 13 s on a link of 20 Mb/s. A note costs a sync of data that the kernel would soon write anyway, and
	// nothing waits for it.
	noteEvery = 4
)

// progress is what is noted of a large object beside its bytes.
type progress struct {
	Format int   `json:"format"`
	Done   []int `json:"done"`
}

// Large begins to receive a large object, or resumes it. Errors: ErrPath, of the file system.
func (f *Folder) Large(instrument string, e *mirrorindex.Entry) (*Large, error) {
	if err := CheckPath(instrument, e.Path); err != nil {
		return nil, err
	}
	name := partsOf(instrument, e)
	if err := f.mkdir(filepath.Dir(name)); err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.large[name] = true
	f.mu.Unlock()
	l := &Large{of: f, instrument: instrument, entry: e, name: name, digest: digesting{sum: sha256.New()}, done: map[int]bool{}}
	var err error
	if l.file, err = f.root.OpenFile(l.name, os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return nil, err
	}
	text, err := f.root.ReadFile(l.name + ".json")
	var noted progress
	if err == nil && json.Unmarshal(text, &noted) == nil && noted.Format == format {
		for _, n := range noted.Done {
			l.done[n] = true
		}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(err, l.file.Close())
	}
	l.noted = len(l.done)
	l.digestParts()
	return l, nil
}

// Parts returns the numbers of the parts that are missing.
func (l *Large) Parts() (missing []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := 0; int64(n)*PartSize < l.entry.Size; n++ {
		if !l.done[n] {
			missing = append(missing, n)
		}
	}
	return missing
}

// Range returns where a part begins, and how long it is.
func (l *Large) Range(n int) (offset, length int64) {
	offset = int64(n) * PartSize
	return offset, min(PartSize, l.entry.Size-offset)
}

// Write completes part n, whose first had bytes are there already.
func (l *Large) Write(n int, had int64, from io.Reader) error {
	offset, length := l.Range(n)
	if _, err := io.Copy(io.NewOffsetWriter(l.file, offset+had), io.LimitReader(from, length-had)); err != nil {
		return err
	}
	l.mu.Lock()
	l.done[n] = true
	l.mu.Unlock()
	l.digestParts()
	return l.noteParts()
}

// WriteAll writes all parts, one after the other.
func (l *Large) WriteAll(from io.Reader) error {
	for n := range int((l.entry.Size + PartSize - 1) / PartSize) {
		if err := l.Write(n, 0, from); err != nil {
			return err
		}
	}
	return nil
}

// noteParts begins a note, where enough came since the last one and none is under way. Errors: what ended the last one.
func (l *Large) noteParts() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.noteErr != nil || l.noting || len(l.done)-l.noted < noteEvery {
		return l.noteErr
	}
	noted := l.progress()
	l.noting, l.noted = true, len(noted.Done)
	l.notes.Go(func() {
		err := l.note(noted)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.noting, l.noteErr = false, err
	})
	return nil
}

// progress is what came so far. The mutex is held.
func (l *Large) progress() progress {
	return progress{Format: format, Done: slices.Sorted(maps.Keys(l.done))}
}

// note writes which parts came, once their bytes are on the disk.
func (l *Large) note(noted progress) error {
	if err := syncData(l.file); err != nil {
		return err
	}
	return l.of.write(l.name+".json", noted)
}

// Close keeps what came for the next run.
func (l *Large) Close() error {
	l.endDigest()
	l.notes.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.noteErr // a second sync may succeed although bytes were lost
	if err == nil {
		err = l.note(l.progress())
	}
	return errors.Join(err, l.file.Close())
}

// Finish compares the bytes with the digest and puts the file into its place. If they differ, it
// discards all bytes. Errors: DigestError, of the file system.
func (l *Large) Finish() error {
	digest, size, err := l.digested()
	l.notes.Wait()
	if err = errors.Join(err, l.noteErr); err != nil {
		return errors.Join(err, l.file.Close())
	}
	if digest != l.entry.Digest || size != l.entry.Size {
		return errors.Join(&DigestError{l.entry.Path, size, l.entry.Size, digest, l.entry.Digest}, l.file.Close(), l.remove())
	}
	err = errors.Join(l.file.Close(), l.of.root.Chtimes(l.name, l.entry.ReceivedAt, l.entry.ReceivedAt))
	if err == nil && l.Before != nil {
		err = l.Before()
	}
	name := l.of.fileName(l.instrument, l.entry)
	if err == nil {
		err = l.of.mkdir(filepath.Dir(name))
	}
	if err == nil {
		err = l.of.root.Rename(l.name, name)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return l.removeNote()
}

func (l *Large) remove() error { return errors.Join(l.of.root.Remove(l.name), l.removeNote()) }

func (l *Large) removeNote() error {
	if err := l.of.root.Remove(l.name + ".json"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Size of the object, in bytes.
func (l *Large) Size() int64 { return l.entry.Size }
