// SPDX-License-Identifier: Apache-2.0

//go:build linux

package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// explain names the call and the key, and puts one of this package's errors and what to do before what the file system said.
func (f *folder) explain(call, key string, err error) error {
	if err == nil {
		return nil
	}
	if key != "" {
		call += " " + key
	}
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("%s: %w: %w", call, ErrUnavailable, err)
	}
	advice, kind := f.classify(err)
	if kind == nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	return fmt.Errorf("%s: %w: %s: %w", call, kind, advice, err)
}

// classify returns nil for what needs no more words: an error of this package, or what is none of them.
func (f *folder) classify(err error) (advice string, kind error) {
	switch {
	case errors.Is(err, unix.ENOSPC):
		return "make space on the file system of " + f.tree.path, ErrFull
	case errors.Is(err, unix.EDQUOT):
		return fmt.Sprintf("raise the quota of user %d on the file system of %s", os.Geteuid(), f.tree.path), ErrFull
	case errors.Is(err, unix.EROFS):
		return fmt.Sprintf("the file system of %s is read-only: look for errors of its disk (dmesg), and mount it for writing", f.tree.path), ErrUnavailable
	case errors.Is(err, unix.EIO):
		return fmt.Sprintf("the disk of %s fails: look for its errors (dmesg)", f.tree.path), ErrUnavailable
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return "too many files are open: raise the limit (ulimit -n)", ErrUnavailable
	case errors.Is(err, unix.ESTALE), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ETIMEDOUT):
		return fmt.Sprintf("the file system of %s went away: mount it again", f.tree.path), ErrUnavailable
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("user %d needs to read, write and enter %s and all in it", os.Geteuid(), f.tree.path), ErrAccessDenied
	default:
		return "", nil
	}
}
