// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// takeLock takes a lock, which ends with the process. Errors: ErrBusy.
func takeLock(file *os.File) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrBusy
	}
	return err
}

// release gives a lock back. Without that, a process that is just being started, and has the file until it runs its program, would hold it.
func release(file *os.File) error {
	return os.NewSyscallError("flock", unix.Flock(int(file.Fd()), unix.LOCK_UN))
}

// place writes a file under a temporary name in a folder, and gives it its name. System calls
// do without what os.File adds to each of many small files.
func place(in *os.File, temporary, name string, data []byte, at time.Time) error {
	dir := int(in.Fd())
	fd, err := unix.Openat(dir, temporary, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	t := unix.NsecToTimespec(at.UnixNano())
	if err = errors.Join(writeAll(fd, data), os.NewSyscallError("close", unix.Close(fd)),
		os.NewSyscallError("utimensat", unix.UtimesNanoAt(dir, temporary, []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW))); err == nil {
		err = os.NewSyscallError("renameat", unix.Renameat(dir, temporary, dir, name))
	}
	if err != nil {
		return errors.Join(err, os.NewSyscallError("unlinkat", unix.Unlinkat(dir, temporary, 0)))
	}
	return nil
}

func writeAll(fd int, data []byte) error {
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("write", err)
		}
		data = data[n:]
	}
	return nil
}

// Sync brings all that was put onto the disk: once for many files, as an fsync for each would
// take longer than to fetch them.
func (f *Folder) Sync() error {
	return os.NewSyscallError("syncfs", unix.Syncfs(int(f.lock.Fd())))
}

// syncData brings the bytes of a file onto the disk.
func syncData(file *os.File) error {
	for {
		if err := unix.Fdatasync(int(file.Fd())); !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
