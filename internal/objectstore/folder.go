// SPDX-License-Identifier: Apache-2.0

package objectstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// folder is Store on a folder of this computer: an object is a file under its key (see nameOf), with its content type and metadata in an
// extended attribute of the file. Programs of several processes may use it at once.
//
// An object is written into a file of its own and synced, and then gets its name, which is synced too: a power cut leaves
// all of it or nothing. So a Put costs two syncs, and one for each folder that it makes.
type folder struct {
	// bucket is the folder of all objects.
	bucket string
	// sync makes a file or a folder survive a power cut.
	sync func(*os.File) error
	// making is held while folders are made.
	making sync.RWMutex
}

// hidden holds what is not finished. No key has this name: see nameOf.
const hidden = ".substorm"

const (
	folderMode = 0o750
	fileMode   = 0o640
	// placeTries is how often a name is given anew where another call removes the folder, empty, before it has it.
	placeTries = 10
)

func openFolder(path string, cfg Config) (Store, error) {
	if !filepath.IsAbs(path) || cfg.Bucket == "" {
		return nil, fmt.Errorf("object store endpoint %q must be a URL like file:///var/lib/substorm/objects, and a bucket must be named", cfg.Endpoint)
	}
	return &folder{bucket: filepath.Join(path, cfg.Bucket), sync: (*os.File).Sync}, nil
}

func (f *folder) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts PutOptions) error {
	return explainFile("put", key, f.put(ctx, key, body, size, opts))
}

func (f *folder) put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts PutOptions) error {
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return err
	}
	h := sha256.New()
	return f.write(ctx, key, opts, func(to *os.File) error {
		if n, err := io.Copy(io.MultiWriter(to, h), io.LimitReader(canceling{ctx, body}, size)); err != nil {
			return err
		} else if n < size {
			return fmt.Errorf("body of %d bytes ended at %d: %w", size, n, io.ErrUnexpectedEOF)
		}
		if got := wire.Digest(h.Sum(nil)); opts.Digest != (wire.Digest{}) && got != opts.Digest {
			return fmt.Errorf("%w: they have digest %s", ErrDigest, got)
		}
		return nil
	})
}

// canceling ends with its context.
type canceling struct {
	ctx context.Context
	io.Reader
}

func (c canceling) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.Reader.Read(p)
}

// write makes an object of what fill writes.
func (f *folder) write(ctx context.Context, key string, opts PutOptions, fill func(*os.File) error) error {
	name, err := nameOf(key)
	if err != nil {
		return err
	}
	if err := f.CheckBucket(ctx); err != nil {
		return err
	}
	unfinished := filepath.Join(f.bucket, hidden, rand.Text())
	file, err := os.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(unfinished) }() // it is gone where it got its name
	err = fill(file)
	if err == nil {
		err = setAttribute(file, opts)
	}
	if err == nil {
		err = f.sync(file)
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	return f.place(ctx, unfinished, filepath.Join(f.bucket, name), opts.CreateOnly)
}

// place gives a file its name, and returns once the name lasts.
func (f *folder) place(ctx context.Context, unfinished, path string, createOnly bool) (err error) {
	for range placeTries {
		if err = ctx.Err(); err != nil {
			return err
		}
		if err = f.haveFolder(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			break
		}
		if createOnly {
			err = os.Link(unfinished, path)
		} else {
			err = os.Rename(unfinished, path)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break // else a Delete has removed the folder
		}
	}
	switch {
	case errors.Is(err, fs.ErrExist) && createOnly:
		return ErrExists
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR):
		return errFileOrFolder
	case err != nil:
		return err
	}
	return f.syncFolder(filepath.Dir(path))
}

// haveFolder makes a folder where it is missing. One that another call makes is there once its name lasts.
func (f *folder) haveFolder(path string) error {
	f.making.RLock()
	_, err := os.Stat(path)
	f.making.RUnlock()
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f.making.Lock()
	defer f.making.Unlock()
	return f.makeFolder(path)
}

var errFileOrFolder = errors.New("this key and a slash begin other keys, or another key and a slash begin this one: the store is a folder, where a name is a file or a folder")

// makeFolder makes a folder of the bucket and those above it, and has their names last.
func (f *folder) makeFolder(path string) error {
	err := os.Mkdir(path, folderMode)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case errors.Is(err, fs.ErrNotExist) && path != f.bucket:
		if err := f.makeFolder(filepath.Dir(path)); err != nil {
			return err
		}
		if err := os.Mkdir(path, folderMode); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	case err != nil:
		return err
	}
	return f.syncFolder(filepath.Dir(path))
}

func (f *folder) syncFolder(path string) error {
	dir, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // what it held was deleted meanwhile
	}
	if err != nil {
		return err
	}
	return errors.Join(f.sync(dir), dir.Close())
}

func (f *folder) Copy(ctx context.Context, from, to string, opts PutOptions) error {
	return explainFile("copy "+from+" to", to, f.copy(ctx, from, to, opts))
}

func (f *folder) copy(ctx context.Context, from, to string, opts PutOptions) error {
	source, info, err := f.open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	if info.Size == 0 {
		return errors.New("an empty object cannot be copied")
	}
	return f.write(ctx, to, opts, func(file *os.File) error {
		_, err := io.Copy(file, source) // copy_file_range(2), where the file system has it
		return err
	})
}

func (f *folder) Get(ctx context.Context, key string, r Range) (io.ReadCloser, Info, error) {
	if err := ctx.Err(); err != nil {
		return nil, Info{}, explainFile("get", key, err)
	}
	file, info, err := f.open(key)
	if err != nil {
		return nil, Info{}, explainFile("get", key, err)
	}
	if r != All && r.Offset >= info.Size {
		_ = file.Close()
		return nil, Info{}, explainFile("get", key, fmt.Errorf("%w: it has %d bytes", ErrRange, info.Size))
	}
	length := info.Size - r.Offset
	if r.Length > 0 {
		length = min(length, r.Length)
	}
	return &part{io.NewSectionReader(file, r.Offset, length), file}, info, nil
}

// part is some of a file.
type part struct {
	io.Reader
	io.Closer
}

// open opens an object.
func (f *folder) open(key string) (*os.File, Info, error) {
	name, err := nameOf(key)
	if err != nil {
		return nil, Info{}, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	file, err := os.Open(filepath.Join(f.bucket, name))
	if err != nil {
		return nil, Info{}, f.missing(err)
	}
	stat, err := file.Stat()
	if err == nil && !stat.Mode().IsRegular() {
		err = ErrNotFound
	}
	info := Info{Key: key}
	if err == nil {
		info.Size, info.ModifiedAt = stat.Size(), stat.ModTime()
		info.ContentType, info.Metadata, err = attribute(file)
	}
	if err != nil {
		_ = file.Close()
		return nil, Info{}, err
	}
	return file, info, nil
}

// missing tells a bucket that is not there from an object.
func (f *folder) missing(err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, bucket := os.Stat(f.bucket); errors.Is(bucket, fs.ErrNotExist) {
		return ErrNoBucket
	}
	return err
}

func (f *folder) Head(ctx context.Context, key string) (Info, error) {
	if err := ctx.Err(); err != nil {
		return Info{}, explainFile("head", key, err)
	}
	file, info, err := f.open(key)
	if err != nil {
		return Info{}, explainFile("head", key, err)
	}
	return info, file.Close()
}

func (f *folder) Delete(ctx context.Context, key string) error {
	return explainFile("delete", key, f.delete(ctx, key))
}

// delete removes a file, and the folders that are empty then.
func (f *folder) delete(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	name, err := nameOf(key)
	if err != nil {
		return nil //nolint:nilerr // no object has this key
	}
	path := filepath.Join(f.bucket, name)
	if info, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || err == nil && info.IsDir() {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for path = filepath.Dir(path); path != f.bucket; path = filepath.Dir(path) {
		if err := os.Remove(path); err != nil { // it holds others
			break
		}
	}
	return f.syncFolder(path)
}

func (f *folder) CheckBucket(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return explainFile("bucket", f.bucket, err)
	}
	if _, err := os.Stat(filepath.Join(f.bucket, hidden)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("bucket %s: %w", f.bucket, ErrNoBucket)
	} else if err != nil {
		return explainFile("bucket", f.bucket, err)
	}
	return nil
}

func (f *folder) EnsureBucket(ctx context.Context) (created bool, err error) {
	if err := f.CheckBucket(ctx); !errors.Is(err, ErrNoBucket) {
		return false, err
	}
	for _, dir := range []string{f.bucket, filepath.Join(f.bucket, hidden)} {
		if err := os.MkdirAll(dir, folderMode); err != nil {
			return false, explainFile("make bucket", f.bucket, err)
		}
	}
	err = cmp.Or(checkAttributes(f.bucket), f.syncFolder(f.bucket), f.syncFolder(filepath.Dir(f.bucket)))
	return err == nil, explainFile("make bucket", f.bucket, err)
}

// AbortOldUploads also removes what puts have left that were killed.
func (f *folder) AbortOldUploads(ctx context.Context, prefix string, before time.Time) (aborted int, err error) {
	entries, err := os.ReadDir(filepath.Join(f.bucket, hidden))
	if err = cmp.Or(ctx.Err(), f.missing(err)); err != nil {
		return 0, explainFile("list uploads", prefix, err)
	}
	for _, e := range entries {
		path := filepath.Join(f.bucket, hidden, e.Name())
		begun := path
		if e.IsDir() {
			if begun = filepath.Join(path, keyFile); !ofUpload(begun, prefix) {
				continue
			}
		}
		if info, err := os.Stat(begun); err != nil || !info.ModTime().Before(before) {
			continue // gone, or at work
		}
		if err := os.RemoveAll(path); err != nil {
			return aborted, explainFile("abort upload", prefix, err)
		}
		if e.IsDir() {
			aborted++
		}
	}
	return aborted, nil
}

// explainFile names the call and the key, and puts one of this package's errors before what the file system said.
func explainFile(call, key string, err error) error {
	if err == nil {
		return nil
	}
	var kind error
	for _, known := range []error{ErrNotFound, ErrRange, ErrNoBucket, ErrExists, ErrAccessDenied, ErrDigest, ErrUnavailable, context.Canceled} {
		if errors.Is(err, known) {
			return fmt.Errorf("%s %s: %w", call, key, err)
		}
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		kind = ErrFull
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		kind = ErrNotFound
	case errors.Is(err, fs.ErrPermission):
		kind = ErrAccessDenied
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.EIO), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ESTALE):
		kind = ErrUnavailable
	default:
		return fmt.Errorf("%s %s: %w", call, key, err)
	}
	return fmt.Errorf("%s %s: %w: %w", call, key, kind, err)
}
