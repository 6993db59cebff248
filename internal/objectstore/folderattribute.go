// SPDX-License-Identifier: Apache-2.0

//go:build linux

package objectstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Attributes of an object's file are what S3 sends as headers: content-type, and the names of metadata. Their names begin with this, and
// their values are those of the headers, so that `rclone copy --metadata` carries them from a folder to an S3 server and back.
const attributePrefix = "user."

const (
	attributeContentType = "content-type"
	// defaultContentType is not kept.
	defaultContentType = "application/octet-stream"
)

// attributes are by name, without the prefix.
type attributes map[string]string

func attributesOf(opts PutOptions) attributes {
	a := attributes{}
	if opts.ContentType != "" && opts.ContentType != defaultContentType {
		a[attributeContentType] = opts.ContentType
	}
	for name, value := range opts.Metadata {
		a[strings.ToLower(name)] = encodeMetadata(value)
	}
	return a
}

// tell puts them into what describes an object.
func (a attributes) tell(info *Info) {
	info.ContentType, info.Metadata = defaultContentType, map[string]string{}
	for name, value := range a {
		if name == attributeContentType {
			info.ContentType = value
			continue
		}
		if strings.HasPrefix(value, "=?") { // as minio-go does
			if decoded, err := new(mime.WordDecoder).DecodeHeader(value); err == nil {
				value = decoded
			}
		}
		info.Metadata[http.CanonicalHeaderKey(name)] = value
	}
}

// set gives a file its attributes. False: the file system has none, or not for so much, and the file has none of them.
func (a attributes) set(file *os.File) (bool, error) {
	var failed error
	for name, value := range a {
		if failed = unix.Fsetxattr(int(file.Fd()), attributePrefix+name, []byte(value), 0); failed != nil {
			break
		}
	}
	switch {
	case failed == nil:
		return true, nil
	case errors.Is(failed, unix.ENOTSUP), errors.Is(failed, unix.E2BIG), errors.Is(failed, unix.ERANGE),
		errors.Is(failed, unix.ENOSPC): // ext4 with blocks of 1 KiB; or the disk is full, and the file aside finds no space either
	default:
		return false, fmt.Errorf("attributes user.*: %w", failed)
	}
	for name := range a {
		_ = unix.Fremovexattr(int(file.Fd()), attributePrefix+name) // those that it did not get are not there
	}
	return false, nil
}

// attributesAt reads the attributes of a file.
func attributesAt(file *os.File) (attributes, error) {
	names, err := attributeBytes(func(to []byte) (int, error) { return unix.Flistxattr(int(file.Fd()), to) })
	a := attributes{}
	for name := range strings.SplitSeq(string(names), "\x00") {
		short, ok := strings.CutPrefix(name, attributePrefix)
		if !ok || err != nil {
			continue
		}
		var value []byte
		value, err = attributeBytes(func(to []byte) (int, error) { return unix.Fgetxattr(int(file.Fd()), name, to) })
		a[short] = string(value)
	}
	if err != nil {
		return nil, fmt.Errorf("attributes user.*: %w", err)
	}
	return a, nil
}

// attributeBytes has a call fill a buffer that is large enough. An attribute that does not exist, or that the file system
// does not support, has no bytes.
func attributeBytes(read func([]byte) (int, error)) ([]byte, error) {
	for size := 1 << 10; ; size *= 8 {
		buffer := make([]byte, size)
		n, err := read(buffer)
		switch {
		case err == nil:
			return buffer[:n], nil
		case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP):
			return nil, nil
		case !errors.Is(err, unix.ERANGE) || size > maxAttribute:
			return nil, err
		}
	}
}

// maxAttribute is the most that Linux has in an attribute, in bytes (XATTR_SIZE_MAX).
const maxAttribute = 64 << 10

// describe tells what is known of an object beside its bytes, where that may lie in a file of its own.
func (t *tree) describe(root *os.Root, file *os.File, path string, stat fs.FileInfo, info *Info) error {
	a := attributes(nil)
	data, err := root.ReadFile(asidePath(path, stat))
	if err == nil {
		if err := json.Unmarshal(data, &a); err != nil {
			return fmt.Errorf("content type and metadata in %s: %w", asidePath(path, stat), err)
		}
	} else if !isMissing(err) {
		return err
	}
	if a == nil {
		var err error
		if a, err = attributesAt(file); err != nil {
			return err
		}
	}
	a.tell(info)
	if len(a) == 0 {
		return errNoAside
	}
	return nil
}

// errNoAside: nothing is said of the object, or no more: it may have been replaced meanwhile.
var errNoAside = errors.New("its metadata is missing")

// asidePath: where a file cannot have its attributes, they are a JSON object in a file .substorm/metadata/<path of the object>/%of-<size>-<time>,
// with the size and the modification time (ns) of the object's file. So an object that is replaced takes its metadata with it at
// once, a copy with its times (cp -p, rsync -t) keeps it, and it costs two more syncs. It is removed after the object.
func asidePath(path string, stat fs.FileInfo) string {
	return filepath.Join(asideFolder, path, fmt.Sprintf("%%of-%d-%d", stat.Size(), stat.ModTime().UnixNano()))
}

// placeWithAside places an object, and before it the attributes that its file cannot have (nil: none), and removes those of the object before.
func (f *folder) placeWithAside(ctx context.Context, u *unfinished, path string, createOnly bool, aside attributes) error {
	t := f.tree
	stat, err := u.file.Stat()
	if err != nil {
		return err
	}
	own := ""
	if aside != nil {
		data, err := json.Marshal(aside)
		if err != nil {
			return err
		}
		own = asidePath(path, stat)
		t.asides.Store(true)
		if err := f.placeBytes(ctx, own, data); err != nil {
			return err
		}
	}
	before := t.asideNow(u.root, path)
	err = t.place(ctx, u.root, u.name, path, createOnly)
	switch {
	case before == own: // none, or the object that is there has the same one
	case err == nil:
		t.removeAside(u.root, before)
	case errors.Is(err, ErrExists):
		t.removeAside(u.root, own)
	}
	return err
}

// placeBytes writes a file aside.
func (f *folder) placeBytes(ctx context.Context, path string, data []byte) error {
	root, err := f.tree.open()
	if err != nil {
		return err
	}
	u, err := newUnfinished(root)
	if err != nil {
		_ = root.Close()
		return err
	}
	defer u.discard()
	if _, err := u.file.Write(data); err != nil {
		return err
	}
	if err := f.tree.sync(u.file); err != nil {
		return err
	}
	return f.tree.place(ctx, root, u.name, path, false)
}

// asideNow returns the path of the metadata of the object that is there now; "" if there is no object, or no object has such metadata.
func (t *tree) asideNow(root *os.Root, path string) string {
	if !t.asides.Load() {
		return ""
	}
	for _, name := range []string{path, filepath.Join(path, ownObject)} {
		if stat, err := root.Lstat(name); err == nil && stat.Mode().IsRegular() {
			return asidePath(path, stat)
		}
	}
	return ""
}

// removeAside removes what was said of an object that is gone. Nothing reads what stays.
func (t *tree) removeAside(root *os.Root, aside string) {
	if aside != "" && t.unlink(root, aside, 0) == nil {
		t.prune(root, filepath.Dir(aside))
	}
}
