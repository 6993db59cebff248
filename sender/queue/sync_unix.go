// SPDX-License-Identifier: Apache-2.0

//go:build unix

package queue

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile holds a file for this process; it returns false where another one does.
func lockFile(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// syncFolder makes renames in a folder survive a power cut.
func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func rename(from, to string) error { return os.Rename(from, to) }

// openToSync opens a file that another process wrote, to read and sync it.
func openToSync(path string) (*os.File, error) { return os.Open(path) }

// IsFull reports whether an error means that the disk has no space.
func IsFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
