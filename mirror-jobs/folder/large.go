// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/substorm/substorm/internal/mirrorindex"
)

// Large is an object that comes in parts of PartSize, in any order. What came is kept where a
// run is killed. Its methods may be called from several goroutines.
type Large struct {
	of         *Folder
	instrument string
	entry      *mirrorindex.Entry
	name       string
	file       *os.File
	digest     digesting

	mu   sync.Mutex
	done map[int]bool
}

// PartSize is the size of a part, in bytes; the last one is shorter.
const PartSize = 8 << 20

// progress is what is noted of a large object beside its bytes.
type progress struct {
	Format int   `json:"format"`
	Done   []int `json:"done"`
}

// Large begins to receive a large object, or goes on with it. Errors: ErrPath, of the file
// system.
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
	var was progress
	if err == nil && json.Unmarshal(text, &was) == nil && was.Format == format {
		for _, n := range was.Done {
			l.done[n] = true
		}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(err, l.file.Close())
	}
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

// Write writes a part, of which it had so many bytes already, and which must be whole then.
func (l *Large) Write(n int, had int64, from io.Reader) error {
	offset, length := l.Range(n)
	if _, err := io.Copy(io.NewOffsetWriter(l.file, offset+had), io.LimitReader(from, length-had)); err != nil {
		return err
	}
	l.mu.Lock()
	l.done[n] = true
	l.mu.Unlock()
	l.digestParts()
	return nil
}

// Close keeps what came for the next run.
func (l *Large) Close() error {
	l.endDigest()
	l.mu.Lock()
	defer l.mu.Unlock()
	was := progress{Format: format}
	for n := range l.done {
		was.Done = append(was.Done, n)
	}
	err := l.file.Sync() // what is noted as done must be there
	if err == nil {
		err = l.of.write(l.name+".json", was)
	}
	return errors.Join(err, l.file.Close())
}

// Finish compares the bytes with the digest and puts the file into its place. Where they
// differ all of them are given up. Errors: DigestError, of the file system.
func (l *Large) Finish() error {
	digest, size, err := l.digested()
	if err != nil {
		return errors.Join(err, l.file.Close())
	}
	if digest != l.entry.Digest || size != l.entry.Size {
		return errors.Join(&DigestError{l.entry.Path, size, l.entry.Size, digest, l.entry.Digest}, l.file.Close(), l.remove())
	}
	err = errors.Join(l.file.Close(), l.of.root.Chtimes(l.name, l.entry.ReceivedAt, l.entry.ReceivedAt))
	name := filepath.Join(l.instrument, l.entry.Path)
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
