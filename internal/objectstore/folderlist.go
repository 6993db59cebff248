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

// listing goes through the names beneath a prefix in the order of their keys' bytes. It holds maxHeld names of one folder at a time, and of
// each of those that this is in.
type listing struct {
	ctx           context.Context
	tree          *tree
	prefix, after string
	// object and folder are called with each, and the folder that has its name.
	object, folder func(dir *os.File, e entry) error
}

// named is a name in a folder.
type named struct {
	// key of the object; or what all keys in the folder begin with: it ends with a slash but where more of the same part follows.
	key string
	// name in its folder.
	name   string
	folder bool
}

// entry is a name in a folder, and its path in the bucket.
type entry struct {
	named
	path string
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
	for after, more := (*named)(nil), true; more; {
		var found []named
		var err error
		if found, more, err = l.entries(dir, at, after); err != nil {
			return err
		}
		for i := range found {
			e := entry{found[i], filepath.Join(path, found[i].name)}
			if l.ctx.Err() != nil {
				return l.ctx.Err()
			}
			call := l.object
			if e.folder {
				call = l.folder
			}
			if err := call(dir, e); err != nil {
				return err
			}
			after = &found[i]
		}
	}
	return l.ctx.Err()
}

// maxHeld is how many names of a folder are held at most while it is listed, at some 100 bytes each: a folder with more is read several
// times, and each time the next ones in order are held. A variable for tests.
var maxHeld = 1 << 16

// selection collects the first entries of a folder that come after one, in the order of their keys.
type selection struct {
	after *named
	held  []named
	// last is the greatest that is still wanted; nil while all are.
	last *named
}

// add takes an entry, if it is among the first.
func (s *selection) add(e named) {
	if s.after != nil && e.compare(*s.after) <= 0 || s.last != nil && e.compare(*s.last) > 0 {
		return
	}
	if s.held = append(s.held, e); len(s.held) < maxHeld {
		return
	}
	s.sort()
	clear(s.held[maxHeld/2:])
	s.held = s.held[:maxHeld/2]
	last := s.held[len(s.held)-1]
	s.last = &last
}

func (s *selection) sort() { slices.SortFunc(s.held, named.compare) }

// compare orders entries by their keys. An object comes before the folder whose keys continue after the same bytes.
func (e named) compare(other named) int {
	switch c := cmp.Compare(e.key, other.key); {
	case c != 0:
		return c
	case e.folder != other.folder && other.folder:
		return -1
	case e.folder != other.folder:
		return 1
	default:
		return cmp.Compare(e.name, other.name)
	}
}

// entries are what a folder has that is wanted and comes after an entry, in the order of their keys. More: others come after them.
func (l *listing) entries(dir *os.File, at string, after *named) (found []named, more bool, err error) {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return nil, false, err
	}
	s := selection{after: after}
	for {
		some, err := dir.ReadDir(namesAtOnce)
		for _, d := range some {
			e, ok := entryOf(d, at)
			if !ok {
				continue
			}
			if l.wants(e) {
				s.add(e)
			}
			if !e.folder || !strings.HasSuffix(e.key, "/") {
				continue
			}
			own := named{key: strings.TrimSuffix(e.key, "/"), name: e.name + "/" + ownObject}
			if l.wants(own) && isFile(dir, own.name) {
				s.add(own)
			}
		}
		if l.ctx.Err() != nil {
			return nil, false, l.ctx.Err()
		}
		if errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist) { // the end, or it was removed meanwhile
			break
		}
		if err != nil {
			return nil, false, err
		}
	}
	s.sort()
	return s.held, s.last != nil, nil
}

// namesAtOnce are read of a folder at a time.
const namesAtOnce = 512

// wants says whether an entry is below the prefix, or leads there, and not before what the list begins after.
func (l *listing) wants(e named) bool {
	if e.folder {
		return strings.HasPrefix(e.key, l.prefix) || strings.HasPrefix(l.prefix, e.key)
	}
	return strings.HasPrefix(e.key, l.prefix) && e.key > l.after
}

// entryOf reads a name in a folder. False: it is none of a key.
func entryOf(d fs.DirEntry, at string) (named, bool) {
	p, ok := partOf(d.Name())
	if !ok || p.more && !d.IsDir() || !d.IsDir() && !d.Type().IsRegular() {
		return named{}, false
	}
	e := named{key: at + p.bytes, name: d.Name(), folder: d.IsDir()}
	if p.bytes == e.name {
		e.name = e.key[len(at):] // the same memory
	}
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
			one, ok := entryOf(d, e.key)
			if ok && !one.folder {
				return true, nil
			}
			if !ok {
				continue
			}
			if has, err := l.hasObjects(inside, entry{one, filepath.Join(e.path, one.name)}); has || err != nil {
				return has, err
			}
		}
		if err != nil {
			return false, ignore(err, io.EOF, fs.ErrNotExist) // or removed meanwhile
		}
	}
}
