// SPDX-License-Identifier: Apache-2.0

//go:build linux

package objectstore

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/internal/wire"
)

// unfinished is a file that is being written and has no key's name yet.
type unfinished struct {
	// root is the bucket's folder, open as long as this is.
	root *os.Root
	file *os.File
	name string
	// kept: the file belongs to an upload, which removes it.
	kept bool
}

// newUnfinished makes an empty file, locked as long as it is open: another process sees that it is at work. After an error root is
// still the caller's.
func newUnfinished(root *os.Root) (*unfinished, error) {
	u := &unfinished{root: root, name: filepath.Join(unfinishedFolder, rand.Text())}
	var err error
	u.file, err = root.OpenFile(u.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if errors.Is(err, fs.ErrNotExist) {
		if err := haveHidden(root, unfinishedFolder); err != nil {
			return nil, err
		}
		u.file, err = root.OpenFile(u.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(u.file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = root.Remove(u.name)
		return nil, errors.Join(fmt.Errorf("lock %s: %w", u.name, err), u.file.Close())
	}
	return u, nil
}

// discard ends what is left of it: nothing of the file, where it got no other name.
func (u *unfinished) discard() {
	if !u.kept {
		_ = u.root.Remove(u.name) // it is gone where it was renamed
	}
	_ = u.file.Close() // what matters is synced
	_ = u.root.Close()
}

// removeUnfinished removes files that no process writes any more and that were last written before a time.
func removeUnfinished(root *os.Root, before time.Time) error {
	entries, err := readFolder(root, unfinishedFolder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := filepath.Join(unfinishedFolder, e.Name())
		info, err := root.Lstat(name)
		if err != nil || !info.ModTime().Before(before) {
			continue // gone, or young
		}
		if info.Mode().IsRegular() && isLocked(root, name) {
			continue
		}
		if err := root.RemoveAll(name); err != nil {
			return err
		}
	}
	return nil
}

// isLocked says whether a process has a file locked.
func isLocked(root *os.Root, name string) bool {
	file, err := root.Open(name)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer func() { _ = file.Close() }()
	return unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
}

// readFolder lists a folder, which may be missing.
func readFolder(root *os.Root, name string) ([]fs.DirEntry, error) {
	dir, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	return dir.ReadDir(-1)
}

// chunk is how much of a body is read and written at a time, in bytes, between two looks at the context.
const chunk = 256 << 10

var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// writeBody writes size bytes of a body, from its beginning, and compares their digest where one is known.
func writeBody(ctx context.Context, to io.Writer, body io.ReadSeeker, size int64, digest wire.Digest) error {
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return err
	}
	var h hash.Hash
	if digest != (wire.Digest{}) {
		h = sha256.New()
		to = io.MultiWriter(to, h)
	}
	buffer := chunks.Get().(*[chunk]byte)
	defer chunks.Put(buffer)
	for left := size; left > 0; {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n, err := io.ReadFull(body, buffer[:min(left, chunk)])
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("body of %d bytes ended at %d: %w", size, size-left+int64(n), io.ErrUnexpectedEOF)
		}
		if err != nil {
			return err
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return err
		}
		left -= int64(n)
	}
	if h != nil && wire.Digest(h.Sum(nil)) != digest {
		return fmt.Errorf("%w: they have the digest %s", ErrDigest, wire.Digest(h.Sum(nil)))
	}
	return nil
}

// copyChunk is how much one copy_file_range(2) copies, in bytes, between two looks at the context.
const copyChunk = 64 << 20

// copyRange appends bytes of another file, by copy_file_range(2): Btrfs and XFS share the blocks.
func copyRange(ctx context.Context, to, from *os.File, offset, size int64) error {
	if _, err := from.Seek(offset, io.SeekStart); err != nil {
		return err
	}
	for left := size; left > 0; {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n, err := io.CopyN(to, from, min(left, copyChunk))
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("its file was cut short: %w", io.ErrUnexpectedEOF)
		}
		if err != nil {
			return err
		}
		left -= n
	}
	return nil
}
