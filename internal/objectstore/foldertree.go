// SPDX-License-Identifier: Apache-2.0

//go:build linux

package objectstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	folderMode = 0o750
	fileMode   = 0o640
	// placeTries is how often a file is given its name where others remove the folder again before.
	placeTries = 10
	// maxKnownFolders bounds how many folders are known to last. One that is forgotten costs a sync.
	maxKnownFolders = 10_000
)

// tree is the folder of a bucket, for all Stores of this process on it: which names in it outlast a power cut.
type tree struct {
	// path is the bucket's folder. All other paths are relative to it.
	path string
	// sync makes what a file or a folder has outlast a power cut; tests leave it out, and have it fail.
	sync func(*os.File) error
	// asides: metadata lies in files of its own, of some objects at least.
	asides atomic.Bool
	// seen: this process had the bucket's folder open.
	seen atomic.Bool

	// change is held for reading while files get and lose names, for writing while folders do.
	change sync.RWMutex
	// folders are those whose own names last, or soon.
	folders map[string]*outcome

	mu sync.Mutex
	// begun: what an earlier process was killed over lasts.
	begun bool
	// syncs are those of folders that run or wait.
	syncs map[string]*folderSync
	// fresh counts the calls that gave a file its name and wait for the name to last.
	fresh map[string]int
}

// trees of this process, by path.
var trees sync.Map

func treeOf(path string) *tree {
	t, _ := trees.LoadOrStore(path, &tree{
		path: path, sync: (*os.File).Sync,
		folders: map[string]*outcome{}, syncs: map[string]*folderSync{}, fresh: map[string]int{},
	})
	return t.(*tree)
}

// outcome is what several calls wait for.
type outcome struct {
	done chan struct{}
	err  error
}

// lasting is the outcome of the bucket's own name, which EnsureBucket made last.
var lasting = func() *outcome {
	o := newOutcome()
	o.end(nil)
	return o
}()

func newOutcome() *outcome { return &outcome{done: make(chan struct{})} }

func (o *outcome) end(err error) {
	o.err = err
	close(o.done)
}

func (o *outcome) wait(ctx context.Context) error {
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// open opens the bucket's folder. The caller closes it.
func (t *tree) open() (*os.Root, error) {
	root, err := os.OpenRoot(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoBucket
	}
	if err != nil {
		return nil, err
	}
	if err := t.begin(root); err != nil {
		_ = root.Close()
		return nil, err
	}
	t.seen.Store(true)
	return root, nil
}

// openObject opens the file of an object: of this path, or in the folder of this path.
func (t *tree) openObject(path string) (*os.File, string, fs.FileInfo, error) {
	dir, err := t.openDir()
	if err != nil {
		return nil, "", nil, err
	}
	defer func() { _ = unix.Close(dir) }()
	for _, name := range []string{path, filepath.Join(path, ownObject)} {
		file, err := openBeneath(dir, t.path, name)
		if isMissing(err) {
			return nil, "", nil, ErrNotFound
		}
		if err != nil {
			return nil, "", nil, err
		}
		stat, err := file.Stat()
		if err == nil && stat.Mode().IsRegular() {
			return file, name, stat, nil
		}
		_ = file.Close()
		if err != nil {
			return nil, "", nil, err
		}
	}
	return nil, "", nil, ErrNotFound
}

// openDir opens the bucket's folder as what paths begin at.
func (t *tree) openDir() (int, error) {
	if !t.seen.Load() {
		root, err := t.open()
		if err != nil {
			return 0, err
		}
		_ = root.Close()
	}
	dir, err := unix.Open(t.path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, ErrNoBucket
	}
	if err != nil {
		return 0, &fs.PathError{Op: "open", Path: t.path, Err: err}
	}
	return dir, nil
}

// openBeneath opens a file beneath a folder for reading, without waiting for a pipe. It is openat2(2), which as os.Root follows no link
// out of the folder: os.Root opens each folder of a path by itself, which takes longer than to read a small object. If a kernel or a
// sandbox has no openat2, os.Root is used.
func openBeneath(dir int, dirPath, name string) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(dir, name, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), filepath.Join(dirPath, name)), nil
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR): // a folder was renamed meanwhile
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
			root, err := os.OpenRoot(dirPath)
			if err != nil {
				return nil, err
			}
			defer func() { _ = root.Close() }()
			return root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
		default:
			return nil, &fs.PathError{Op: "open", Path: filepath.Join(dirPath, name), Err: err}
		}
	}
}

// begin makes last what is there: a process that was killed may have left objects under their names that never were synced, and
// who finds them here takes them for safe.
func (t *tree) begin(root *os.Root) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.begun {
		return nil
	}
	if _, err := root.Lstat(asideFolder); err == nil {
		t.asides.Store(true)
	}
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return fmt.Errorf("sync of the file system: %w", err)
	}
	t.begun = true
	return nil
}

// place gives a file its name, and returns once the name outlasts a power cut. CreateOnly: a name that is taken is ErrExists. Once it has
// begun it does not end with ctx.
func (t *tree) place(ctx context.Context, root *os.Root, unfinished, path string, createOnly bool) error {
	name := path
	for range placeTries {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		folder := filepath.Dir(name)
		err := t.haveFolder(root, folder)
		var own *outcome
		if err == nil {
			own, err = t.rename(root, unfinished, name, createOnly)
		}
		switch {
		case err == nil:
			defer t.grow(name, -1)
			return t.awaitDurable(folder, own)
		case errors.Is(err, errIsFolder):
			name = filepath.Join(path, ownObject)
		case errors.Is(err, ErrExists): // the caller relies on the object that is there
			return cmp.Or(t.awaitDurable(folder, own), err)
		case isMissing(err):
			t.forget(folder)
		default:
			return err
		}
	}
	return fmt.Errorf("%w: its folder is removed each time it is created", ErrUnavailable)
}

var errIsFolder = errors.New("there is a folder of this name")

// rename gives a file a name in a folder that is there, and returns when the folder's own name lasts. A name that this call gives
// counts as fresh.
func (t *tree) rename(root *os.Root, unfinished, name string, createOnly bool) (*outcome, error) {
	from, err := root.Open(filepath.Dir(unfinished))
	if err != nil {
		return nil, err
	}
	defer func() { _ = from.Close() }()
	t.change.RLock()
	defer t.change.RUnlock()
	own := lasting
	if folder := filepath.Dir(name); folder != "." {
		own = t.folders[folder]
	}
	if own == nil {
		return nil, fs.ErrNotExist // removed since it was made
	}
	to, err := root.Open(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	defer func() { _ = to.Close() }()
	t.grow(name, 1)
	err = renameAt(from, filepath.Base(unfinished), to, filepath.Base(name), createOnly)
	if err == nil {
		return own, nil
	}
	t.grow(name, -1)
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EISDIR) {
		info, stat := root.Lstat(name)
		switch {
		case stat == nil && info.IsDir():
			return nil, errIsFolder
		case createOnly:
			return own, ErrExists
		}
	}
	return nil, fmt.Errorf("rename to %s: %w", name, err)
}

// renameAt is renameat2(2). File systems without RENAME_NOREPLACE (NFS) have link(2), which leaves the old name to the caller.
func renameAt(from *os.File, name string, to *os.File, newName string, createOnly bool) error {
	if !createOnly {
		return unix.Renameat(int(from.Fd()), name, int(to.Fd()), newName)
	}
	err := unix.Renameat2(int(from.Fd()), name, int(to.Fd()), newName, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return unix.Linkat(int(from.Fd()), name, int(to.Fd()), newName, 0)
	}
	return err
}

// grow counts calls that wait for a name to last.
func (t *tree) grow(name string, by int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fresh[name] += by; t.fresh[name] == 0 {
		delete(t.fresh, name)
	}
}

// settle returns once a name that was found outlasts a power cut: no caller may rely on an object that may be gone after it.
func (t *tree) settle(ctx context.Context, name string) error {
	t.mu.Lock()
	fresh := t.fresh[name] > 0
	t.mu.Unlock()
	if !fresh {
		return nil
	}
	folder := filepath.Dir(name)
	t.change.RLock()
	own := t.folders[folder]
	t.change.RUnlock()
	if own == nil {
		own = lasting
	}
	if err := t.syncSoon(folder).wait(ctx); err != nil {
		return err
	}
	return own.wait(ctx)
}

// awaitDurable returns once the names that a folder has now outlast a power cut, and the folder's own.
func (t *tree) awaitDurable(folder string, own *outcome) error {
	names := t.syncSoon(folder)
	<-names.done
	<-own.done
	return cmp.Or(names.err, own.err)
}

// remove removes a file, if there is one, and the folders that are empty then, and returns once they will not come back.
func (t *tree) remove(ctx context.Context, root *os.Root, path string) error {
	name := path
	err := t.unlink(root, name, 0)
	if errors.Is(err, unix.EISDIR) {
		name = filepath.Join(path, ownObject)
		err = t.unlink(root, name, 0)
	}
	if err != nil && !isMissing(err) {
		return err
	}
	return t.syncSoon(t.prune(root, filepath.Dir(name))).wait(ctx)
}

// prune removes a folder if it is empty, then the one that it was in, and so on. It returns the first one that is not.
func (t *tree) prune(root *os.Root, folder string) string {
	for folder != "." && folder != asideFolder {
		if err := t.unlink(root, folder, unix.AT_REMOVEDIR); err != nil && !isMissing(err) {
			break // it holds others
		}
		folder = filepath.Dir(folder)
	}
	return folder
}

// unlink is unlinkat(2).
func (t *tree) unlink(root *os.Root, name string, flags int) error {
	if flags == unix.AT_REMOVEDIR {
		t.change.Lock()
		defer t.change.Unlock()
	} else {
		t.change.RLock()
		defer t.change.RUnlock()
	}
	in, err := root.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	if err := unix.Unlinkat(int(in.Fd()), filepath.Base(name), flags); err != nil {
		return err
	}
	if flags == unix.AT_REMOVEDIR {
		delete(t.folders, name)
	}
	return nil
}

// isMissing: there is nothing of this name, or what should be a folder of its path is a file.
func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) }
