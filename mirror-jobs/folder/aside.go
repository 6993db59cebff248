// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/wire"
)

// The file of an object takes the place of one that has its path: that of the version before. Where the other side lists no version
// before, the file is that of another object, since the other side was installed again under its code, or restored from an older backup, or
// gave one path to two objects; or it was changed here. It is set aside: it gets another name. So does the file of an object whose path is
// that of a folder: no file system has both.

// AsidePath is where the file of an object with a digest is that was set aside.
func AsidePath(of string, digest wire.Digest) string {
	const digits = 16 // of the digest
	return objectpath.ToldBy(of, digest.String()[:digits])
}

// SetAside sets the file aside that has the path of an object which is about to come, and returns its AsidePath; empty: there was none, or
// it is a damaged copy of the object itself, or of an earlier version of it. Last says of an earlier version, by its digest, whether the other
// side cannot give it any more: then it is set aside, too. Errors: of the file system, of last.
func (f *Folder) SetAside(instrument string, e *mirrorindex.Entry, last func(wire.Digest) (bool, error)) (aside string, err error) {
	if CheckPath(instrument, e.Path) != nil { // Put refuses the path
		return "", nil
	}
	name := filepath.Join(instrument, e.Path)
	info, err := f.root.Lstat(name)
	switch {
	case errors.Is(err, syscall.ENOTDIR):
		return f.clearFolder(instrument, e.Path)
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case !info.Mode().IsRegular() || sameTime(info.ModTime(), e.ReceivedAt):
		return "", nil
	}
	digest, size, err := f.digest(name)
	if err != nil || digest == e.Digest && size == e.Size {
		return "", err
	}
	if e.Version > 1 {
		if is, err := last(digest); err != nil || !is {
			return "", err
		}
	}
	aside = AsidePath(e.Path, digest)
	return aside, f.root.Rename(name, filepath.Join(instrument, aside))
}

// clearFolder sets the file aside that has the path of a folder of an object.
func (f *Folder) clearFolder(instrument, path string) (aside string, err error) {
	for _, of := range wire.NameFolders(path) {
		name := filepath.Join(instrument, of)
		info, err := f.root.Lstat(name)
		if err != nil {
			return "", err
		}
		if !info.Mode().IsRegular() {
			continue
		}
		digest, _, err := f.digest(name)
		if err != nil {
			return "", err
		}
		aside = AsidePath(of, digest)
		return aside, f.root.Rename(name, filepath.Join(instrument, aside))
	}
	return "", nil
}

// fileName is the file of an object that comes: set aside where a folder has its path.
func (f *Folder) fileName(instrument string, e *mirrorindex.Entry) string {
	name := filepath.Join(instrument, e.Path)
	if info, err := f.root.Lstat(name); err == nil && info.IsDir() {
		return filepath.Join(instrument, AsidePath(e.Path, e.Digest))
	}
	return name
}
