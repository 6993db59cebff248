// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
)

// DigestError: what came is not the object.
type DigestError struct {
	Path       string
	Size, Want int64
	Is, Digest wire.Digest
}

// Error implements error.
func (e *DigestError) Error() string {
	if e.Is == (wire.Digest{}) { // it was not computed
		return fmt.Sprintf("%s: it has %d bytes, and the list says %d", e.Path, e.Size, e.Want)
	}
	return fmt.Sprintf("%s: %d bytes came with SHA-256 %s, and the list says %d bytes with %s", e.Path, e.Size, e.Is, e.Want, e.Digest)
}

// CheckPath says whether an object of an instrument may be a file here. Errors: ErrPath.
func CheckPath(instrument, path string) error {
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." || strings.HasPrefix(part, unfinished) || strings.ContainsRune(part, 0) || len(part) > 255 {
			return fmt.Errorf("%s/%q: %w", instrument, path, ErrPath)
		}
	}
	return nil
}

// Writer puts objects into a folder. It is for one goroutine: it keeps open the folder that
// the last object came into.
type Writer struct {
	// Before is called when an object's bytes are known to be its own, before its file gets its path. Optional.
	Before func(instrument string, e *mirrorindex.Entry) error

	of  *Folder
	dir string
	at  *os.File
}

// Writer returns a new one.
func (f *Folder) Writer() *Writer { return &Writer{of: f} }

// Close gives up what it keeps open.
func (w *Writer) Close() error {
	if w.at == nil {
		return nil
	}
	return w.at.Close()
}

// openFolder opens a folder, and makes it if it does not exist.
func (w *Writer) openFolder(dir string) (*os.File, error) {
	if w.at != nil && w.dir == dir {
		return w.at, nil
	}
	if err := w.of.mkdir(dir); err != nil {
		return nil, err
	}
	at, err := w.of.root.Open(dir)
	if err != nil {
		return nil, err
	}
	_ = w.Close() // nothing is written to a folder itself
	w.dir, w.at = dir, at
	return at, nil
}

// Put writes an object whose bytes are all there. It is not on the disk before Sync. Errors:
// DigestError, ErrPath, of the file system.
func (w *Writer) Put(instrument string, e *mirrorindex.Entry, data []byte) error {
	if digest := wire.Digest(sha256.Sum256(data)); digest != e.Digest || int64(len(data)) != e.Size {
		return &DigestError{e.Path, int64(len(data)), e.Size, digest, e.Digest}
	}
	if err := CheckPath(instrument, e.Path); err != nil {
		return err
	}
	if w.Before != nil {
		if err := w.Before(instrument, e); err != nil {
			return err
		}
	}
	name := filepath.Join(instrument, e.Path)
	err := w.place(name, data, e.ReceivedAt)
	if errors.Is(err, syscall.EISDIR) {
		name = w.of.fileName(instrument, e)
		err = w.place(name, data, e.ReceivedAt)
	}
	if errors.Is(err, fs.ErrNotExist) { // the folder was removed since, as it was empty
		w.of.forget(filepath.Dir(name))
		w.dir = ""
		err = w.place(name, data, e.ReceivedAt)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (w *Writer) place(name string, data []byte, at time.Time) error {
	dir, err := w.openFolder(filepath.Dir(name))
	if err != nil {
		return err
	}
	return place(dir, filepath.Base(w.of.temporary(name)), filepath.Base(name), data, at)
}

// Has says whether the file of an object is there already, as after a run that was killed
// before it could note that: it has its size and time, and its digest. It may have been set aside.
func (f *Folder) Has(instrument string, e *mirrorindex.Entry) bool {
	if CheckPath(instrument, e.Path) != nil {
		return false
	}
	name := filepath.Join(instrument, e.Path)
	info, err := f.root.Lstat(name)
	if err != nil || !looksLike(info, e) {
		return f.verify(instrument, AsidePath(e.Path, e.Digest), e, true) == nil
	}
	digest, size, err := f.digest(name)
	return err == nil && size == e.Size && digest == e.Digest
}

// looksLike says whether a file may be the file of an object.
func looksLike(info fs.FileInfo, e *mirrorindex.Entry) bool {
	return info.Mode().IsRegular() && info.Size() == e.Size && sameTime(info.ModTime(), e.ReceivedAt)
}

// sameTime: some file systems keep whole seconds.
func sameTime(a, b time.Time) bool { return a.Truncate(time.Second).Equal(b.Truncate(time.Second)) }

func (f *Folder) digest(name string) (d wire.Digest, size int64, err error) {
	file, err := f.root.Open(name)
	if err != nil {
		return d, 0, err
	}
	defer file.Close()
	h := sha256.New()
	size, err = io.Copy(h, file)
	return wire.Digest(h.Sum(nil)), size, err
}

// Verify says what is wrong with the file of an object; nil: nothing. It may have been set aside. With digest its bytes are read. Errors:
// DigestError, of the file system.
func (f *Folder) Verify(instrument string, e *mirrorindex.Entry, digest bool) error {
	wrong := f.verify(instrument, e.Path, e, digest)
	if wrong == nil || f.verify(instrument, AsidePath(e.Path, e.Digest), e, digest) == nil {
		return nil
	}
	return wrong
}

func (f *Folder) verify(instrument, path string, e *mirrorindex.Entry, digest bool) error {
	name := filepath.Join(instrument, path)
	info, err := f.root.Lstat(name)
	if err != nil {
		return err
	}
	mismatch := &DigestError{e.Path, info.Size(), e.Size, wire.Digest{}, e.Digest}
	if !info.Mode().IsRegular() || info.Size() != e.Size {
		return mismatch
	}
	if !digest {
		return nil
	}
	if mismatch.Is, mismatch.Size, err = f.digest(name); err != nil {
		return err
	}
	if mismatch.Is != e.Digest {
		return mismatch
	}
	return nil
}

// OpenObject opens the file of an object that came in this run. Errors: of the file system.
func (f *Folder) OpenObject(instrument string, e *mirrorindex.Entry) (io.ReadCloser, error) {
	return f.root.Open(f.fileName(instrument, e))
}

// HasBytes says whether the file of an object is there, or was set aside, whatever its time: it has its size and digest.
func (f *Folder) HasBytes(instrument string, e *mirrorindex.Entry) bool {
	return CheckPath(instrument, e.Path) == nil && f.Verify(instrument, e, true) == nil
}

// Remove removes the file of an object, and the folders that are empty then, and says whether it did. A file under the path of the object
// belongs to another object by now if it has another size, or both another time and another digest: it stays. If only the time differs,
// the times of the folder were lost, or the other object has the same bytes: stays says whether there is such an object. It is called
// only then; nil: there is none. A file of the object that was set aside is removed, too.
func (f *Folder) Remove(instrument string, e *mirrorindex.Entry, stays func() (bool, error)) (removed bool, err error) {
	if err := CheckPath(instrument, e.Path); err != nil {
		return false, err
	}
	aside, err := f.removeAside(instrument, e)
	if err != nil {
		return false, err
	}
	removed, err = f.removePublished(instrument, e, stays)
	return removed || aside, err
}

// removeAside removes the file of an object that was set aside, and says whether there was one.
func (f *Folder) removeAside(instrument string, e *mirrorindex.Entry) (bool, error) {
	path := AsidePath(e.Path, e.Digest)
	var differs *DigestError
	switch err := f.verify(instrument, path, e, true); {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENAMETOOLONG), errors.As(err, &differs):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, f.root.Remove(filepath.Join(instrument, path))
}

func (f *Folder) removePublished(instrument string, e *mirrorindex.Entry, stays func() (bool, error)) (removed bool, err error) {
	name := filepath.Join(instrument, e.Path)
	info, err := f.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || err == nil && info.IsDir() {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !looksLike(info, e) {
		if is, err := f.isOf(instrument, e, stays); err != nil || !is {
			return false, err
		}
	}
	if err := f.root.Remove(name); err != nil {
		return false, err
	}
	for dir := filepath.Dir(name); dir != "." && f.root.Remove(dir) == nil; dir = filepath.Dir(dir) {
		f.forget(dir)
	}
	return true, nil
}

// isOf says whether a file with another time is the object's file nevertheless.
func (f *Folder) isOf(instrument string, e *mirrorindex.Entry, stays func() (bool, error)) (bool, error) {
	var differs *DigestError
	switch err := f.verify(instrument, e.Path, e, true); {
	case errors.As(err, &differs):
		return false, nil
	case err != nil:
		return false, err
	case stays == nil:
		return true, nil
	}
	other, err := stays()
	return !other, err
}
