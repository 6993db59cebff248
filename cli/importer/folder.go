// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// readAtOnce entries of a folder are held in memory.
	readAtOnce = 512
	// singlePut is up to what size an object is sent in one request; larger ones are sent in parts, and a failed part is sent again by
	// itself.
	singlePut = 256 << 20
	// maxVersions of one name are looked for.
	maxVersions  = 10_000
	abortTimeout = 10 * time.Second
	// maxMetadata is what S3 keeps of names and values.
	maxMetadata = 2 << 10
)

// folder is a tree of files. They are uploaded to named keys.
type folder struct {
	dir              string
	site, instrument string
	store            objectstore.Store
}

func (f *folder) key(name string) string { return wire.NamedKey(f.site, f.instrument, name, 1) }

func (f *folder) each(ctx context.Context) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) { f.walk(ctx, "", yield) }
}

// walk yields what lies in a folder, some entries at a time, in no order.
func (f *folder) walk(ctx context.Context, name string, yield func(item, error) bool) bool {
	dir, err := os.Open(filepath.Join(f.dir, filepath.FromSlash(name)))
	if err != nil {
		return yield(item{name: name + "/"}, &unplaced{Unreadable, err})
	}
	defer dir.Close()
	for {
		entries, err := dir.ReadDir(readAtOnce)
		for _, e := range entries {
			if ctx.Err() != nil {
				return yield(item{}, ctx.Err())
			}
			if !f.entry(ctx, path.Join(name, e.Name()), e, yield) {
				return false
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return true
		case err != nil:
			return yield(item{name: name + "/"}, &unplaced{Unreadable, err})
		}
	}
}

func (f *folder) entry(ctx context.Context, name string, e fs.DirEntry, yield func(item, error) bool) bool {
	if e.IsDir() {
		return f.walk(ctx, name, yield)
	}
	i := item{name: name}
	if !e.Type().IsRegular() {
		return yield(i, because(NotAFile, "it is no regular file but %s: links are not followed", kindOf(e.Type())))
	}
	info, err := e.Info()
	if err != nil {
		return yield(i, &unplaced{Unreadable, err})
	}
	i.size, i.modified = info.Size(), info.ModTime()
	if err := wire.CheckName(name); err != nil {
		return yield(i, &unplaced{NameNotAllowed, err})
	}
	return yield(i, nil)
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	default:
		return "a device"
	}
}

func (f *folder) place(ctx context.Context, p *placement) error {
	file, err := os.Open(filepath.Join(f.dir, filepath.FromSlash(p.name)))
	if err != nil {
		return &unplaced{Unreadable, err}
	}
	defer file.Close()
	if err := sameFile(file, p.item); err != nil {
		return err
	}
	digest, size, err := digestOf(ctx, file)
	p.read = size
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return &unplaced{Unreadable, err}
	case size != p.size:
		return because(Changing, "it had %d bytes and now has %d", p.size, size)
	}
	if err := sameFile(file, p.item); err != nil {
		return err
	}
	if err := p.digested(digest); err != nil {
		return err
	}
	if holds(p.before, digest) {
		p.known = true // it was only touched
		return nil
	}
	return f.upload(ctx, file, p)
}

const changing = "it was written to while it was read: import once more when it is finished"

// sameFile says whether an open file is still what was seen of it.
func sameFile(file *os.File, i item) error {
	info, err := file.Stat()
	if err != nil {
		return &unplaced{Unreadable, err}
	}
	if info.Size() != i.size || !info.ModTime().Equal(i.modified) {
		return because(Changing, changing)
	}
	return nil
}

// upload stores the file under its name; where that holds other bytes, as the
// name's next version.
func (f *folder) upload(ctx context.Context, file *os.File, p *placement) error {
	taken := len(p.before) > 0
	for version := 1; version <= maxVersions; version++ {
		p.notice.Key = wire.NamedKey(f.site, f.instrument, p.name, version)
		p.notice.ID, p.version = p.notice.Key, version > 1
		if !taken {
			err := f.put(ctx, file, p)
			if !errors.Is(err, objectstore.ErrExists) {
				return err
			}
		}
		there, err := f.readNotice(ctx, p.notice.Key)
		switch {
		case errors.Is(err, objectstore.ErrNotFound):
			taken = false
			version-- // it is free: put it there
		case err != nil:
			return err
		case there.Digest == p.notice.Digest:
			return p.found(there)
		}
	}
	return because(NameNotAllowed, "there are %d versions of it already", maxVersions)
}

// readNotice returns the notice of the object under a key.
func (f *folder) readNotice(ctx context.Context, key string) (wire.Notice, error) {
	info, err := f.store.Head(ctx, key)
	if err != nil {
		return wire.Notice{}, err
	}
	n, err := wire.NoticeFromMetadata(key, info.Metadata)
	if errors.Is(err, wire.ErrMalformed) {
		return wire.Notice{}, nil // some other object: it has no digest
	}
	return n, err
}

// found: the bytes are there under the name, and in no manifest. An object that an import stored and
// had not announced yet is announced now; a gateway itself announces the objects that it stores.
func (p *placement) found(there wire.Notice) error {
	p.known = there.Gateway != wire.ImportWriter
	p.notice = there
	return nil
}

// put stores the file, which the server compares with its digest: bytes that
// changed since it was computed are refused.
func (f *folder) put(ctx context.Context, file *os.File, p *placement) error {
	metadata, err := wire.ObjectMetadata(p.notice)
	if err != nil {
		return err
	}
	length := 0
	for name, value := range metadata {
		length += len(name) + len(value)
	}
	if length > maxMetadata {
		return because(NameNotAllowed, "its name is too long to be kept with the object (%d bytes of metadata, S3 keeps %d): give it a shorter one", length, maxMetadata)
	}
	opts := objectstore.PutOptions{ContentType: p.notice.MediaType, Metadata: metadata, Digest: p.notice.Digest, CreateOnly: true}
	if p.size > singlePut {
		return f.putParts(ctx, file, p, opts)
	}
	err = f.store.Put(ctx, p.notice.Key, io.NewSectionReader(file, 0, p.size), p.size, opts)
	if err == nil || errors.Is(err, objectstore.ErrExists) {
		return err
	}
	if errors.Is(err, objectstore.ErrDigest) {
		return because(Changing, changing)
	}
	if changed := sameFile(file, p.item); changed != nil {
		return changed
	}
	return err
}

// putParts stores a large file.
func (f *folder) putParts(ctx context.Context, file *os.File, p *placement, opts objectstore.PutOptions) error {
	u, err := f.store.NewUpload(ctx, p.notice.Key, opts)
	if err != nil {
		return err
	}
	size := max(64<<20, (p.size+objectstore.MaxParts-1)/objectstore.MaxParts)
	for number, at := 1, int64(0); at < p.size && err == nil; number, at = number+1, at+size {
		n := min(size, p.size-at)
		err = u.Part(ctx, number, io.NewSectionReader(file, at, n), n, wire.Digest{})
	}
	if err == nil {
		err = sameFile(file, p.item)
	}
	if err == nil {
		err = u.Complete(ctx)
	}
	if err != nil {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
		defer cancel()
		if abort := u.Abort(end); abort != nil {
			return fmt.Errorf("%w (and its parts are left to the sweep: %v)", err, abort)
		}
	}
	return err
}
