// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockFile holds a file for this process; it returns false where another one does.
func lockFile(f *os.File) (bool, error) {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return false, nil
	}
	return err == nil, err
}

// syncFolder does nothing: rename writes through, and a folder cannot be flushed.
func syncFolder(string) error { return nil }

// rename returns once the new name is on the disk.
func rename(from, to string) error {
	source, err := windows.UTF16PtrFromString(from)
	if err != nil {
		return err
	}
	target, err := windows.UTF16PtrFromString(to)
	if err != nil {
		return err
	}
	if err := windows.MoveFileEx(source, target, windows.MOVEFILE_REPLACE_EXISTING|windows.MOVEFILE_WRITE_THROUGH); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// openToSync opens a file that another process wrote, to read and sync it: Windows flushes only
// files that are open for writing.
func openToSync(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDWR, 0) }

// IsFull reports whether an error means that the disk has no space.
func IsFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}
