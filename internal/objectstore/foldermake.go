// SPDX-License-Identifier: Apache-2.0

//go:build linux

package objectstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// haveFolder makes a folder, and those that it is in, where they are missing. Their names last once their outcome says so.
func (t *tree) haveFolder(root *os.Root, folder string) error {
	t.change.RLock()
	known := folder == "." || t.folders[folder] != nil
	t.change.RUnlock()
	if known {
		return nil
	}
	t.change.Lock()
	defer t.change.Unlock()
	var made []newFolder
	above := lasting
	for _, path := range pathsTo(folder) {
		own := t.folders[path]
		if own == nil {
			if err := t.makeFolder(root, path); err != nil {
				t.forgetLocked(path)
				go t.lastNew(made)
				return err
			}
			own = newOutcome()
			t.folders[path] = own
			made = append(made, newFolder{path, own, above})
		}
		above = own
	}
	go t.lastNew(made)
	t.boundKnown()
	return nil
}

// pathsTo are the folders from the bucket down to one: a, a/b and a/b/c.
func pathsTo(folder string) (paths []string) {
	for i := range len(folder) {
		if folder[i] == '/' {
			paths = append(paths, folder[:i])
		}
	}
	return append(paths, folder)
}

// makeFolder makes one folder. An object of its name moves into it.
func (t *tree) makeFolder(root *os.Root, path string) error {
	err := root.Mkdir(path, folderMode)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := root.Lstat(path)
	switch {
	case err != nil || info.IsDir():
		return err
	case info.Mode().IsRegular():
		return t.moveInto(root, path)
	default:
		return fmt.Errorf("%s is neither a file nor a folder: take it out of the bucket", filepath.Join(t.path, path))
	}
}

// moveInto makes a folder in the place of an object, which becomes the folder's own object. A concurrent reader finds it here or there.
// The caller holds change.
func (t *tree) moveInto(root *os.Root, path string) error {
	if err := haveHidden(root, unfinishedFolder); err != nil {
		return err
	}
	folder := filepath.Join(unfinishedFolder, rand.Text())
	if err := root.Mkdir(folder, folderMode); err != nil {
		return err
	}
	defer func() { _ = root.RemoveAll(folder) }() // what has this name in the end: the folder, or the object's old name
	if err := root.Link(path, filepath.Join(folder, ownObject)); err != nil {
		return err
	}
	if err := t.syncNow(folder); err != nil {
		return err
	}
	from, err := root.Open(unfinishedFolder)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	to, err := root.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }()
	err = unix.Renameat2(int(from.Fd()), filepath.Base(folder), int(to.Fd()), filepath.Base(path), unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("an object has the name of this folder, and the file system of %s cannot exchange names (renameat2): use ext4, XFS or Btrfs: %w", t.path, err)
	}
	return err
}

// newFolder is a folder whose name is to last, with the outcomes of its own name and of the folder that it is in.
type newFolder struct {
	path       string
	own, above *outcome
}

// lastNew makes the names of folders last, from above down.
func (t *tree) lastNew(made []newFolder) {
	for _, f := range made {
		err := t.syncSoon(filepath.Dir(f.path)).wait(context.Background())
		if err == nil {
			err = f.above.wait(context.Background())
		}
		if err != nil {
			t.forget(f.path)
		}
		f.own.end(err)
	}
}

// forget has a folder and its parents checked again.
func (t *tree) forget(folder string) {
	t.change.Lock()
	defer t.change.Unlock()
	t.forgetLocked(folder)
}

func (t *tree) forgetLocked(folder string) {
	for _, path := range pathsTo(folder) {
		delete(t.folders, path)
	}
}

// boundKnown forgets the folders that last when there are many.
func (t *tree) boundKnown() {
	if len(t.folders) <= maxKnownFolders {
		return
	}
	for path, own := range t.folders {
		select {
		case <-own.done:
			delete(t.folders, path)
		default:
		}
	}
}

// haveHidden makes a folder beneath hidden. Its content need not last.
func haveHidden(root *os.Root, folder string) error {
	for _, path := range pathsTo(folder) {
		if err := root.Mkdir(path, folderMode); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// folderSync is the sync of a folder that runs, and the one after it.
type folderSync struct {
	// next is the outcome for callers that came after the running sync began; nil: there are none.
	next *outcome
}

// syncSoon has a folder synced, by a sync that begins after this call did. Calls that come while one runs share the next.
func (t *tree) syncSoon(folder string) *outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.syncs[folder]
	if s == nil {
		s = &folderSync{}
		t.syncs[folder] = s
		go t.syncWhileAsked(folder, s)
	}
	if s.next == nil {
		s.next = newOutcome()
	}
	return s.next
}

func (t *tree) syncWhileAsked(folder string, s *folderSync) {
	for {
		t.mu.Lock()
		asked := s.next
		s.next = nil
		if asked == nil {
			delete(t.syncs, folder)
		}
		t.mu.Unlock()
		if asked == nil {
			return
		}
		asked.end(t.syncNow(folder))
	}
}

// syncNow syncs a folder: the names in it outlast a power cut. One that is gone has none.
func (t *tree) syncNow(folder string) error {
	dir, err := os.OpenInRoot(t.path, folder)
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(t.sync(dir), dir.Close())
}
