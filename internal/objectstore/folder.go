// SPDX-License-Identifier: Apache-2.0

//go:build linux

package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/substorm/substorm/internal/durable"
)

// folder is Store on a folder of this computer. One process writes to a bucket at a time; any number read.
//
// An object is the file <folder>/<bucket>/<key>, whose bytes are the object's: no program of Substorm is needed to read it. If a
// file system does not take a key as it is, pathOf writes it otherwise. Content type and metadata are extended attributes of the
// file (see attributes), which are synced with it. Names that begin with a point are no keys; all that is not an object is in
// .substorm of the bucket's folder:
//
//	.substorm/unfinished/  files that are being written; AbortOldUploads removes what a kill left
//	.substorm/uploads/     a folder for each upload: its key, and its parts
//	.substorm/metadata/    attributes that files cannot have: see asidePath
//
// Put writes a file, syncs it, gives it its name by rename(2), and syncs the folder that has the name and each that was made for it: a
// power cut leaves all of an object or nothing, and all of it once Put has returned. Calls that wait for the same folder share its sync.
type folder struct {
	tree *tree
}

const (
	hidden           = ".substorm"
	unfinishedFolder = hidden + "/unfinished"
	uploadsFolder    = hidden + "/uploads"
	asideFolder      = hidden + "/metadata"
)

func openFolder(u *url.URL, cfg Config) (Store, error) {
	switch {
	case u.Host != "" || !filepath.IsAbs(u.Path) || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("object store endpoint %q must be a URL like file:///var/lib/substorm/objects, with %%XX for what a URL cannot hold", cfg.Endpoint)
	case cfg.Bucket == "" || strings.ContainsAny(cfg.Bucket, "/\x00") || strings.HasPrefix(cfg.Bucket, "."):
		return nil, fmt.Errorf("object store %s: bucket %q must be the name of a folder", cfg.Endpoint, cfg.Bucket)
	}
	return &folder{treeOf(filepath.Join(u.Path, cfg.Bucket))}, nil
}

func (f *folder) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts PutOptions) error {
	return f.explain("put", key, f.write(ctx, key, opts, func(file *os.File) error {
		return writeBody(ctx, file, body, size, opts.Digest)
	}))
}

func (f *folder) Copy(ctx context.Context, from, to string, opts PutOptions) error {
	source, o, err := f.open(ctx, from)
	if err == nil {
		defer func() { _ = source.Close() }()
		if o.info.Size == 0 {
			err = errors.New("an empty object cannot be copied")
		}
	}
	if err == nil {
		err = f.write(ctx, to, opts, func(file *os.File) error { return copyRange(ctx, file, source, 0, o.info.Size) })
	}
	return f.explain("copy "+from+" to", to, err)
}

// write makes an object of what fill writes into a file.
func (f *folder) write(ctx context.Context, key string, opts PutOptions, fill func(*os.File) error) error {
	if _, err := pathOf(key); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	root, err := f.tree.open()
	if err != nil {
		return err
	}
	u, err := newUnfinished(root)
	if err != nil {
		_ = root.Close()
		return err
	}
	if err := fill(u.file); err != nil {
		u.discard()
		return err
	}
	return await(ctx, func() error {
		defer u.discard()
		return f.finish(ctx, u, key, opts)
	})
}

// await returns what a function does, or earlier when ctx ends: a sync of a disk that hangs does not end. The function continues then.
func await(ctx context.Context, function func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- function() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// finish makes an object of a file that has its bytes.
func (f *folder) finish(ctx context.Context, u *unfinished, key string, opts PutOptions) error {
	path, err := pathOf(key)
	if err != nil {
		return err
	}
	aside := attributesOf(opts)
	if all, err := aside.set(u.file); err != nil {
		return err
	} else if all {
		aside = nil
	}
	if err := f.tree.sync(u.file); err != nil {
		return err
	}
	if aside == nil && !f.tree.asides.Load() {
		return f.tree.place(ctx, u.root, u.name, path, opts.CreateOnly)
	}
	return f.placeWithAside(ctx, u, path, opts.CreateOnly, aside)
}

// find opens an object and says what it is, with its metadata.
func (f *folder) find(ctx context.Context, key string) (*os.File, Info, error) {
	for {
		file, o, err := f.open(ctx, key)
		if err != nil {
			return nil, Info{}, err
		}
		err = f.describe(file, o)
		if err == nil {
			return file, o.info, nil
		}
		_ = file.Close()
		if !errors.Is(err, errReplaced) {
			return nil, Info{}, err
		}
	}
}

// opened is the file of an object.
type opened struct {
	path, name string
	stat       fs.FileInfo
	info       Info
}

// open opens an object, which outlasts a power cut then. Its info has no metadata.
func (f *folder) open(ctx context.Context, key string) (*os.File, *opened, error) {
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	path, err := pathOf(key)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	file, name, stat, err := f.tree.openObject(path)
	if err != nil {
		return nil, nil, err
	}
	if err := f.tree.settle(ctx, name); err != nil {
		_ = file.Close()
		return nil, nil, err
	}
	return file, &opened{path, name, stat, Info{Key: key, Size: stat.Size(), ModifiedAt: stat.ModTime()}}, nil
}

// errReplaced: what was said of an object went with it. Another object has the name, or none.
var errReplaced = errors.New("the object was replaced")

// describe adds what is known of an object beside its bytes. If that is with the file, as on most file systems, the bucket's folder is
// not opened once more.
func (f *folder) describe(file *os.File, o *opened) error {
	if !f.tree.asides.Load() {
		a, err := attributesAt(file)
		if err != nil {
			return err
		}
		a.tell(&o.info)
		return nil
	}
	root, err := f.tree.open()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	err = f.tree.describe(root, file, o.path, o.stat, &o.info)
	if !errors.Is(err, errNoAside) {
		return err
	}
	if now, err := root.Lstat(o.name); err != nil || !os.SameFile(now, o.stat) {
		return errReplaced
	}
	return nil
}

func (f *folder) Head(ctx context.Context, key string) (Info, error) {
	file, info, err := f.find(ctx, key)
	if err != nil {
		return Info{}, f.explain("head", key, err)
	}
	return info, f.explain("head", key, file.Close())
}

func (f *folder) Get(ctx context.Context, key string, r Range) (io.ReadCloser, Info, error) {
	file, o, err := f.open(ctx, key)
	if err != nil {
		return nil, Info{}, f.explain("get", key, err)
	}
	info := o.info
	if r != All && r.Offset >= info.Size {
		_ = file.Close()
		return nil, Info{}, f.explain("get", key, fmt.Errorf("%w: it has %d bytes", ErrRange, info.Size))
	}
	length := info.Size - r.Offset
	if r.Length > 0 {
		length = min(length, r.Length)
	}
	return &objectReader{ctx: ctx, folder: f, key: key, file: file, next: r.Offset, left: length}, info, nil
}

// objectReader reads a range of an object.
type objectReader struct {
	ctx    context.Context
	folder *folder
	key    string
	file   *os.File
	// next is the offset of what is read next, left how many bytes are.
	next, left int64
}

func (r *objectReader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, r.folder.explain("get", r.key, r.ctx.Err())
	}
	if r.left == 0 {
		return 0, io.EOF
	}
	n, err := r.file.ReadAt(p[:min(int64(len(p)), r.left)], r.next)
	r.next, r.left = r.next+int64(n), r.left-int64(n)
	if errors.Is(err, io.EOF) {
		err = nil
		if n == 0 && len(p) > 0 {
			err = fmt.Errorf("its file was cut short, %d bytes are missing: %w", r.left, io.ErrUnexpectedEOF)
		}
	}
	return n, r.folder.explain("get", r.key, err)
}

func (r *objectReader) Close() error { return r.file.Close() }

func (f *folder) Delete(ctx context.Context, key string) error {
	return f.explain("delete", key, f.delete(ctx, key))
}

func (f *folder) delete(ctx context.Context, key string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	root, err := f.tree.open()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	path, err := pathOf(key)
	if err != nil {
		return nil //nolint:nilerr // no object has this key
	}
	aside := f.tree.asideNow(root, path)
	if err := f.tree.remove(ctx, root, path); err != nil {
		return err
	}
	f.tree.removeAside(root, aside)
	return nil
}

func (f *folder) CheckBucket(ctx context.Context) error {
	err := func() error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		root, err := f.tree.open()
		if err != nil {
			return err
		}
		defer func() { _ = root.Close() }()
		dir, err := root.Open(".")
		if err != nil {
			return err
		}
		defer func() { _ = dir.Close() }()
		if _, err := dir.Readdirnames(1); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		return nil
	}()
	return f.explain("bucket", f.tree.path, err)
}

func (f *folder) EnsureBucket(ctx context.Context) (created bool, err error) {
	if err := f.CheckBucket(ctx); !errors.Is(err, ErrNoBucket) {
		return false, err
	}
	if f.tree.seen.Load() { // an empty one in its place would take what comes for the archive, and hide it when the disk is back
		return false, fmt.Errorf("%w any more: folder %s is gone: mount its disk, or bring the folder back", ErrNoBucket, f.tree.path)
	}
	created, err = makeDurably(f.tree.path)
	return created && err == nil, f.explain("make bucket", f.tree.path, err)
}

// makeDurably makes a folder, and those that it is in, and has their names outlast a power cut.
func makeDurably(path string) (created bool, err error) {
	err = os.Mkdir(path, folderMode)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := makeDurably(filepath.Dir(path)); err != nil {
			return false, err
		}
		err = os.Mkdir(path, folderMode)
	}
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, durable.SyncFolder(filepath.Dir(path))
}
