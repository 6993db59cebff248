// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// exclusive takes a lock, which ends with the process. Errors: ErrBusy.
func exclusive(file *os.File) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrBusy
	}
	return err
}

// setTime sets when an open file was last modified.
func setTime(file *os.File, at time.Time) error {
	t := unix.NsecToTimeval(at.UnixNano())
	return unix.Futimes(int(file.Fd()), []unix.Timeval{t, t})
}

// Sync brings all that was put onto the disk: once for many files, as an fsync for each would
// take longer than to fetch them.
func (f *Folder) Sync() error {
	return os.NewSyscallError("syncfs", unix.Syncfs(int(f.lock.Fd())))
}
