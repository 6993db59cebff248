// SPDX-License-Identifier: Apache-2.0

//go:build linux

package objectstore

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func (f *folder) List(ctx context.Context, prefix, startAfter string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		l := &listing{ctx: ctx, tree: f.tree, prefix: prefix, after: startAfter}
		l.object = func(dir *os.File, e entry) error {
			info, err := l.look(dir, e)
			if err == nil && !yield(info, nil) {
				return errEnough
			}
			return ignore(err, fs.ErrNotExist) // deleted meanwhile
		}
		l.folder = func(dir *os.File, e entry) error {
			if !strings.HasPrefix(l.after, e.key) && l.after > e.key {
				return nil
			}
			return l.enter(dir, e)
		}
		if err := ignore(l.run(), errEnough); err != nil {
			yield(Info{}, f.explain("list", prefix, err))
		}
	}
}

func (f *folder) Folders(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		l := &listing{ctx: ctx, tree: f.tree, prefix: prefix}
		l.object = func(*os.File, entry) error { return nil }
		l.folder = func(dir *os.File, e entry) error {
			if !strings.HasSuffix(e.key, "/") {
				return l.enter(dir, e) // more of its name
			}
			has, err := l.hasObjects(dir, e)
			if has && !yield(strings.TrimSuffix(strings.TrimPrefix(e.key, prefix), "/"), nil) {
				return errEnough
			}
			return err
		}
		if err := ignore(l.run(), errEnough); err != nil {
			yield("", f.explain("list", prefix, err))
		}
	}
}

// errEnough: the caller wants no more.
var errEnough = errors.New("no more is wanted")

// ignore returns nil where an error is one of these.
func ignore(err error, kinds ...error) error {
	for _, kind := range kinds {
		if errors.Is(err, kind) {
			return nil
		}
	}
	return err
}

// listing goes through the names beneath a prefix in the order of their keys' bytes. It holds the names of one folder at a time, and of
// those that this is in.
type listing struct {
	ctx           context.Context
	tree          *tree
	prefix, after string
	// object and folder are called with each, and the folder that has its name.
	object, folder func(dir *os.File, e entry) error
}

// entry is a name in a folder.
type entry struct {
	// key of the object; or what all keys in the folder begin with: it ends with a slash but where more of the same part follows.
	key string
	// name in its folder, path in the bucket.
	name, path string
	folder     bool
}

// run begins in the folder that the prefix names.
func (l *listing) run() error {
	if l.ctx.Err() != nil {
		return l.ctx.Err()
	}
	root, err := l.tree.open()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	at, path := "", "."
	if slash := strings.LastIndexByte(l.prefix, '/'); slash >= 0 {
		at, path = l.prefix[:slash+1], emptyPart
		if slash > 0 {
			if path, err = pathOf(l.prefix[:slash]); err != nil {
				return nil //nolint:nilerr // no key is so long
			}
		}
	}
	dir, err := root.Open(path)
	if err != nil {
		if isMissing(err) {
			return nil
		}
		return err
	}
	defer func() { _ = dir.Close() }()
	return l.walk(dir, at, path)
}

// walk calls with all that a folder has. All keys in it begin with at.
func (l *listing) walk(dir *os.File, at, path string) error {
	if info, err := dir.Stat(); err != nil || !info.IsDir() {
		return err
	}
	entries, err := l.entries(dir, at, path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch {
		case l.ctx.Err() != nil:
			return l.ctx.Err()
		case e.folder && (strings.HasPrefix(e.key, l.prefix) || strings.HasPrefix(l.prefix, e.key)):
			err = l.folder(dir, e)
		case !e.folder && strings.HasPrefix(e.key, l.prefix) && e.key > l.after:
			err = l.object(dir, e)
		}
		if err != nil {
			return err
		}
	}
	if l.ctx.Err() != nil {
		return l.ctx.Err()
	}
	return nil
}

// entries are what a folder has, in the order of their keys.
func (l *listing) entries(dir *os.File, at, path string) ([]entry, error) {
	found, err := dir.ReadDir(-1)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // or removed meanwhile
		return nil, err
	}
	all := make([]entry, 0, len(found))
	for _, d := range found {
		e, ok := entryOf(d, at, path)
		if !ok {
			continue
		}
		all = append(all, e)
		if own := e.name + "/" + ownObject; e.folder && strings.HasSuffix(e.key, "/") && isFile(dir, own) {
			all = append(all, entry{key: strings.TrimSuffix(e.key, "/"), name: own, path: filepath.Join(e.path, ownObject)})
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
	return all, nil
}

// entryOf reads a name in a folder. False: it is none of a key.
func entryOf(d fs.DirEntry, at, path string) (entry, bool) {
	p, ok := partOf(d.Name())
	if !ok || p.more && !d.IsDir() || !d.IsDir() && !d.Type().IsRegular() {
		return entry{}, false
	}
	e := entry{key: at + p.bytes, name: d.Name(), path: filepath.Join(path, d.Name()), folder: d.IsDir()}
	if e.folder && !p.more {
		e.key += "/"
	}
	return e, true
}

func isFile(dir *os.File, name string) bool {
	var stat unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && stat.Mode&unix.S_IFMT == unix.S_IFREG
}

// look describes an object without its metadata.
func (l *listing) look(dir *os.File, e entry) (Info, error) {
	if err := l.tree.settle(l.ctx, e.path); err != nil {
		return Info{}, err
	}
	var stat unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), e.name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Info{}, err
	}
	return Info{Key: e.key, Size: stat.Size, ModifiedAt: time.Unix(stat.Mtim.Unix())}, nil
}

// openWithin opens a folder within another; nil where it is gone.
func (l *listing) openWithin(dir *os.File, e entry) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), e.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if isMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: e.path, Err: err}
	}
	return os.NewFile(uintptr(fd), filepath.Join(l.tree.path, e.path)), nil
}

func (l *listing) enter(dir *os.File, e entry) error {
	inside, err := l.openWithin(dir, e)
	if inside == nil || err != nil {
		return err
	}
	defer func() { _ = inside.Close() }()
	return l.walk(inside, e.key, e.path)
}

// hasObjects says whether there is an object beneath a folder: an empty one is what a kill left, or about to get one.
func (l *listing) hasObjects(dir *os.File, e entry) (bool, error) {
	inside, err := l.openWithin(dir, e)
	if inside == nil || err != nil {
		return false, err
	}
	defer func() { _ = inside.Close() }()
	for {
		some, err := inside.ReadDir(64)
		for _, d := range some {
			one, ok := entryOf(d, e.key, e.path)
			if ok && !one.folder {
				return true, nil
			}
			if !ok {
				continue
			}
			if has, err := l.hasObjects(inside, one); has || err != nil {
				return has, err
			}
		}
		if err != nil {
			return false, ignore(err, io.EOF, fs.ErrNotExist) // or removed meanwhile
		}
	}
}
