// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/wire"
)

// The file of an object replaces a file at its path only if that file belongs to an earlier version that the other side lists as
// superseded: it can give that version again. Any other file is set aside under another name. It belongs to an object that expired there,
// or that is not listed any more, since the other side was installed again under its code, or restored from an older backup; or to
// another object of the path; or it was changed here. The file of an object whose path is also a folder's is set aside, too: no file
// system has both.

// AsidePath is where the file of an object with a digest is that was set aside.
func AsidePath(of string, digest wire.Digest) string {
	const digits = 16 // of the digest
	return objectpath.ToldBy(of, digest.String()[:digits])
}

// Aside is a file that was set aside.
type Aside struct {
	// The file had the path Of, and has its AsidePath, Path.
	Of, Path string
	Digest   wire.Digest
	// ReceivedAt is when its object was received, as the time of the file says.
	ReceivedAt time.Time
}

// Knows reports something about the copy with a path and a digest.
type Knows func(path string, digest wire.Digest) bool

// SetAside sets the file aside that has the path of an object which is about to come, or of a folder of that; nil: there was none, or it is
// of an earlier version (replaced), or a damaged copy of the object itself: it has the time of that, and is not the last copy of another
// object (last). Errors: of the file system.
func (f *Folder) SetAside(instrument string, e *mirrorindex.Entry, replaced, last Knows) (*Aside, error) {
	if CheckPath(instrument, e.Path) != nil { // Put refuses the path
		return nil, nil
	}
	info, err := f.root.Lstat(filepath.Join(instrument, e.Path))
	switch {
	case errors.Is(err, syscall.ENOTDIR):
		return f.clearFolder(instrument, e.Path)
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, nil
	}
	digest, size, err := f.digest(filepath.Join(instrument, e.Path))
	if err != nil || digest == e.Digest && size == e.Size || replaced(e.Path, digest) {
		return nil, err
	}
	if sameTime(info.ModTime(), e.ReceivedAt) && !last(e.Path, digest) {
		return nil, nil
	}
	return f.setAside(instrument, &Aside{Of: e.Path, Digest: digest, ReceivedAt: info.ModTime()})
}

func (f *Folder) setAside(instrument string, a *Aside) (*Aside, error) {
	a.Path = AsidePath(a.Of, a.Digest)
	if err := f.root.Rename(filepath.Join(instrument, a.Of), filepath.Join(instrument, a.Path)); err != nil {
		return nil, err
	}
	return a, nil
}

// clearFolder sets the file aside that has the path of a folder of an object.
func (f *Folder) clearFolder(instrument, path string) (*Aside, error) {
	for _, of := range wire.NameFolders(path) {
		name := filepath.Join(instrument, of)
		info, err := f.root.Lstat(name)
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			continue
		}
		digest, _, err := f.digest(name)
		if err != nil {
			return nil, err
		}
		return f.setAside(instrument, &Aside{Of: of, Digest: digest, ReceivedAt: info.ModTime()})
	}
	return nil, nil
}

// RemoveAside removes the file that had a path and was set aside, if there is one, since it is of a version that the other side has as
// superseded.
func (f *Folder) RemoveAside(instrument, of string, digest wire.Digest) error {
	err := f.root.Remove(filepath.Join(instrument, AsidePath(of, digest)))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG) {
		return nil
	}
	return err
}

// fileName is the file of an object that comes: set aside where a folder has its path.
func (f *Folder) fileName(instrument string, e *mirrorindex.Entry) string {
	name := filepath.Join(instrument, e.Path)
	if info, err := f.root.Lstat(name); err == nil && info.IsDir() {
		return filepath.Join(instrument, AsidePath(e.Path, e.Digest))
	}
	return name
}
