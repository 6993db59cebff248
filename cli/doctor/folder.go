// SPDX-License-Identifier: Apache-2.0

//go:build linux

package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/cli/up"
)

// folder is the data folder, as it is found.
type folder struct {
	path string
	// at is a folder of the same disk that is there: the data folder, or the nearest one above it.
	at string
	// holder is the process of the Site that runs in it, 0 if none does or it is unknown.
	holder int
	// owner is the user whose it is, -1 where it is not there.
	owner int
	check Check
}

const folderCheck = "data folder"

// lookAtFolder looks whether a Site can have its data there.
func lookAtFolder(path string) folder {
	f := folder{path: path, at: path, owner: -1}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		f.check = f.lookAbove()
		return f
	}
	if err != nil {
		f.check = failed(folderCheck, "run substorm doctor as the user of the Site, or as root", "%v", err)
		return f
	}
	if !info.IsDir() {
		f.check = failed(folderCheck, "name another one with --data-dir", "%s is no folder", path)
		return f
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		f.owner = int(stat.Uid)
	}
	f.check = f.lookAt(info.Mode().Perm())
	return f
}

// lookAbove looks at where the folder is to be made.
func (f *folder) lookAbove() Check {
	for f.at = filepath.Dir(f.path); ; f.at = filepath.Dir(f.at) {
		if _, err := os.Stat(f.at); err == nil || f.at == filepath.Dir(f.at) {
			break
		}
	}
	if err := access(f.at); err != nil {
		return failed(folderCheck, "make "+f.path+" and give it to the user of the Site (chown), or name another one with --data-dir",
			"%s does not exist, and cannot be made in %s: %v", f.path, f.at, err)
	}
	return fine(folderCheck, "%s does not exist: substorm up makes it", f.path)
}

func access(dir string) error { return unix.Access(dir, unix.R_OK|unix.W_OK|unix.X_OK) }

func (f *folder) lookAt(mode fs.FileMode) Check {
	err := access(f.path)
	whose := fmt.Sprintf("%s is of user %d, mode %04o", f.path, f.owner, mode)
	switch {
	case errors.Is(err, unix.EROFS):
		return failed(folderCheck, "mount it for writing (mount -o remount,rw); after an error of the disk dmesg says why it is so", "%s, and on a file system that is read-only", whose)
	case err != nil:
		return failed(folderCheck, fmt.Sprintf("run substorm as that user, or give the folder to user %d (chown)", os.Geteuid()),
			"%s, and cannot be read and written by user %d: %v", whose, os.Geteuid(), err)
	}
	format, err := up.Format(f.path)
	if err != nil {
		return failed(folderCheck, "until then nothing runs here", "%v", err)
	}
	held, err := f.lookAtHolder()
	if err != nil {
		return warning(folderCheck, "run substorm doctor as the user of the Site, or as root", "%s; whether a Site runs in it cannot be seen: %v", whose, err)
	}
	found := fmt.Sprintf("%s, %s, %s", whose, held, formatWords(format))
	if mode&0o022 != 0 {
		return warning(folderCheck, "let only its user write there: chmod 0700 "+f.path, "%s", found)
	}
	return fine(folderCheck, "%s", found)
}

func formatWords(format int) string {
	if format == 0 {
		return "new"
	}
	return fmt.Sprintf("of format %d", format)
}

// lookAtHolder notes who has the folder.
func (f *folder) lookAtHolder() (said string, err error) {
	pid, err := up.Holder(f.path)
	if err != nil {
		return "", err
	}
	if pid == 0 {
		return "held by no Site", nil
	}
	f.holder = pid
	return fmt.Sprintf("held by the Site that runs as process %d", pid), nil
}
