// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/substorm/substorm/internal/mirrorindex"
)

// partsName is the folder, in the mirror's own, of large objects that are not whole.
const partsName = "parts"

// partsOf is the file of the parts of a large object.
func partsOf(instrument string, e *mirrorindex.Entry) string {
	return filepath.Join(own, partsName, instrument+"-"+e.Digest.String())
}

// PartBytes is what the parts of a large object that came so far take of the disk.
func (f *Folder) PartBytes(instrument string, e *mirrorindex.Entry) (int64, error) {
	info, err := f.root.Lstat(partsOf(instrument, e))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	is, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, nil
	}
	return is.Blocks * 512, nil // stat(2): whatever the file system's blocks are
}

// RemoveParts removes the parts of large objects that Large was not called for since the folder was opened: after a run that
// fetched all it could, no list has these objects any more.
func (f *Folder) RemoveParts() error {
	entries, err := fs.ReadDir(f.root.FS(), filepath.Join(own, partsName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		name := filepath.Join(own, partsName, e.Name())
		f.mu.Lock()
		asked := f.large[strings.TrimSuffix(name, ".json")]
		f.mu.Unlock()
		if !asked {
			err = errors.Join(err, f.root.RemoveAll(name))
		}
	}
	return err
}

// RemoveObjects removes all objects, as those that a run which was killed had in a folder where they are on their way alone. Parts of
// large ones stay.
func (f *Folder) RemoveObjects() error {
	entries, err := fs.ReadDir(f.root.FS(), ".")
	for _, e := range entries {
		if e.Name() != own {
			err = errors.Join(err, f.root.RemoveAll(e.Name()))
		}
	}
	return err
}
