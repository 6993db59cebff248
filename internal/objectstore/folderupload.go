// SPDX-License-Identifier: Apache-2.0

//go:build linux

package objectstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// The content of an upload's folder: its key, the object as far as parts lie at their place in it, and a file for each other part.
const (
	uploadKey    = "key"
	uploadObject = "object"
)

// folderUpload is an object that arrives in parts. If all parts but the last have the length of the first that came, each is written at
// its place in the object's file, and Complete copies nothing. Others get a file of their own, which Complete copies.
type folderUpload struct {
	folder *folder
	key    string
	// path of its folder.
	path string
	opts PutOptions

	mu sync.Mutex
	// length of the parts that have a place: number n begins at n-1 times the length. 0: not known yet.
	length int64
	parts  map[int]uploadPart
	// writing are the numbers whose place is taken.
	writing map[int]bool
}

// uploadPart is a part that arrived.
type uploadPart struct {
	size int64
	// file of its own; "": it is at its place.
	file string
}

func (f *folder) NewUpload(ctx context.Context, key string, opts PutOptions) (Upload, error) {
	u := &folderUpload{folder: f, key: key, path: filepath.Join(uploadsFolder, rand.Text()), opts: opts, parts: map[int]uploadPart{}, writing: map[int]bool{}}
	if err := u.begin(ctx); err != nil {
		return nil, f.explain("begin upload", key, err)
	}
	return u, nil
}

func (u *folderUpload) begin(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, err := pathOf(u.key); err != nil {
		return err
	}
	root, err := u.folder.tree.open()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := haveHidden(root, u.path); err != nil {
		return err
	}
	return root.WriteFile(filepath.Join(u.path, uploadKey), []byte(u.key), fileMode)
}

// open opens the bucket's folder, where the upload still is.
func (u *folderUpload) open(ctx context.Context) (*os.Root, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	root, err := u.folder.tree.open()
	if err != nil {
		return nil, err
	}
	if _, err := root.Lstat(filepath.Join(u.path, uploadKey)); err != nil {
		_ = root.Close()
		if isMissing(err) {
			return nil, fmt.Errorf("%w: the upload was completed, aborted, or removed for its age", ErrNotFound)
		}
		return nil, err
	}
	return root, nil
}

func (u *folderUpload) Part(ctx context.Context, number int, body io.ReadSeeker, size int64, digest wire.Digest) error {
	return u.folder.explain(fmt.Sprintf("upload part %d of", number), u.key, u.part(ctx, number, body, size, digest))
}

func (u *folderUpload) part(ctx context.Context, number int, body io.ReadSeeker, size int64, digest wire.Digest) error {
	if number < 1 || number > MaxParts {
		return fmt.Errorf("parts have numbers from 1 to %d", MaxParts)
	}
	root, err := u.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	part := uploadPart{size: size}
	name, offset, flags := uploadObject, int64(0), os.O_WRONLY|os.O_CREATE
	if place, ok := u.takePlace(number, size); ok {
		offset = place
	} else {
		part.file = rand.Text()
		name, flags = part.file, flags|os.O_EXCL
	}
	file, err := root.OpenFile(filepath.Join(u.path, name), flags, fileMode)
	if err != nil {
		return err
	}
	err = writeBody(ctx, io.NewOffsetWriter(file, offset), body, size, digest)
	if err != nil {
		_ = file.Close()
	} else { // synced as it comes: Complete takes no longer for a large object than for a small one
		err = await(ctx, func() error { return errors.Join(u.folder.tree.sync(file), file.Close()) })
	}
	u.end(root, number, part, err)
	return err
}

// takePlace says where a part lies in the object. False: it needs a file of its own, as its place is not known, or is taken by an
// earlier try.
func (u *folderUpload) takePlace(number int, size int64) (offset int64, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if isLast := size < MinPart && number > 1; u.length == 0 && !isLast {
		u.length = size
	}
	if u.writing[number] || size > u.length {
		return 0, false
	}
	u.writing[number] = true
	return int64(number-1) * u.length, true
}

// end takes a part that arrived. One that did not gives its place to another try.
func (u *folderUpload) end(root *os.Root, number int, p uploadPart, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err != nil {
		if p.file == "" {
			delete(u.writing, number)
		}
		return
	}
	if before := u.parts[number]; before.file != "" {
		_ = root.Remove(filepath.Join(u.path, before.file)) // else it goes with the upload
	}
	u.parts[number] = p
}

func (u *folderUpload) Complete(ctx context.Context) error {
	return u.folder.explain("complete upload", u.key, u.complete(ctx))
}

func (u *folderUpload) complete(ctx context.Context) error {
	root, err := u.open(ctx)
	if err != nil {
		return err
	}
	object, err := u.object(ctx, root)
	if err != nil {
		_ = root.Close()
		return err
	}
	return await(ctx, func() error {
		defer object.discard()
		if err := u.folder.finish(ctx, object, u.key, u.opts); err != nil {
			return err
		}
		_ = root.RemoveAll(u.path) // what stays, AbortOldUploads removes
		return nil
	})
}

// object is the file of the whole object. After an error root is still the caller's.
func (u *folderUpload) object(ctx context.Context, root *os.Root) (*unfinished, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	numbers := slices.Sorted(maps.Keys(u.parts))
	if len(numbers) == 0 {
		return nil, errors.New("no part has arrived")
	}
	placed := true
	for i, number := range numbers {
		part, last := u.parts[number], i == len(numbers)-1
		if part.size < MinPart && !last {
			return nil, fmt.Errorf("part %d of %d bytes is not the last: it needs %d", number, part.size, MinPart)
		}
		placed = placed && number == i+1 && (part.size == u.length || part.size < u.length && last)
	}
	if !placed {
		return u.joined(ctx, root, numbers)
	}
	name := filepath.Join(u.path, uploadObject)
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	if err := u.fillPlaces(ctx, root, file, numbers); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &unfinished{root: root, file: file, name: name, kept: true}, nil
}

// fillPlaces copies the parts that have a file of their own to their places, and ends the object after the last.
func (u *folderUpload) fillPlaces(ctx context.Context, root *os.Root, object *os.File, numbers []int) error {
	size := int64(0)
	for _, number := range numbers {
		begin := int64(number-1) * u.length
		size = begin + u.parts[number].size
		if u.parts[number].file == "" {
			continue
		}
		if _, err := object.Seek(begin, io.SeekStart); err != nil {
			return err
		}
		if err := u.copyPart(ctx, root, object, number); err != nil {
			return err
		}
	}
	return object.Truncate(size)
}

// joined copies the parts into one file.
func (u *folderUpload) joined(ctx context.Context, root *os.Root, numbers []int) (*unfinished, error) {
	whole, err := newUnfinished(root)
	if err != nil {
		return nil, err
	}
	for _, number := range numbers {
		if err := u.copyPart(ctx, root, whole.file, number); err != nil {
			_ = root.Remove(whole.name)
			return nil, errors.Join(err, whole.file.Close())
		}
	}
	return whole, nil
}

// copyPart copies a part to where a file is.
func (u *folderUpload) copyPart(ctx context.Context, root *os.Root, to *os.File, number int) error {
	part := u.parts[number]
	name, offset := part.file, int64(0)
	if name == "" {
		name, offset = uploadObject, int64(number-1)*u.length
	}
	file, err := root.Open(filepath.Join(u.path, name))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return copyRange(ctx, to, file, offset, part.size)
}

func (u *folderUpload) Abort(ctx context.Context) error {
	err := func() error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		root, err := u.folder.tree.open()
		if err != nil {
			return err
		}
		defer func() { _ = root.Close() }()
		return root.RemoveAll(u.path)
	}()
	return u.folder.explain("abort upload", u.key, err)
}

// AbortOldUploads also removes, whatever the prefix, files that were last written before that time by processes that are gone.
func (f *folder) AbortOldUploads(ctx context.Context, prefix string, before time.Time) (int, error) {
	aborted, err := f.abortOldUploads(ctx, prefix, before)
	return aborted, f.explain("abort uploads", prefix, err)
}

func (f *folder) abortOldUploads(ctx context.Context, prefix string, before time.Time) (aborted int, err error) {
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	root, err := f.tree.open()
	if err != nil {
		return 0, err
	}
	defer func() { _ = root.Close() }()
	entries, err := readFolder(root, uploadsFolder)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		path := filepath.Join(uploadsFolder, e.Name())
		key, begun, err := uploadAt(root, path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && (!begun.Before(before) || key != "" && !strings.HasPrefix(key, prefix)) {
			continue
		}
		if err == nil {
			err = root.RemoveAll(path)
		}
		if err != nil {
			return aborted, err
		}
		if key != "" {
			aborted++
		}
	}
	return aborted, removeUnfinished(root, before)
}

// uploadAt is the key of the upload of a folder, and when it began. One without a key was killed as it began, or as it ended.
func uploadAt(root *os.Root, path string) (key string, begun time.Time, err error) {
	name := filepath.Join(path, uploadKey)
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		if info, err = root.Lstat(path); err != nil {
			return "", time.Time{}, err
		}
		return "", info.ModTime(), nil
	}
	if err != nil {
		return "", time.Time{}, err
	}
	data, err := root.ReadFile(name)
	return string(data), info.ModTime(), err
}
