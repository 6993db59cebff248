// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// diskBytes is the size of a disk. It takes what is written to it.
const diskBytes = 16 << 30

// Disk returns a folder on a new ext4 file system in a file, for what writes many files. On a file system that is in use, ext4 does not
// use the inodes of removed files again for five minutes, and a process that makes a file after others removed some passes over each of
// these inodes: it takes ten times as long, and a different time for each candidate. It needs mkfs.ext4 and the right to mount.
func (l *Lab) Disk() string {
	dir := l.TempDir()
	image, at := filepath.Join(dir, "disk"), filepath.Join(dir, "mounted")
	err := os.WriteFile(image, nil, 0o600)
	if err == nil {
		err = os.Truncate(image, diskBytes)
	}
	if err == nil {
		err = os.Mkdir(at, 0o755)
	}
	for _, command := range [][]string{
		{"mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1", "-i", "4096", image}, {"mount", "-o", "loop,noinit_itable", image, at},
	} {
		if err == nil {
			err = run(command)
		}
	}
	if err != nil {
		l.Fatalf("a disk of its own for a benchmark: %v", err)
	}
	l.Cleanup(func() { _ = run([]string{"umount", at}) })
	return at
}

func run(command []string) error {
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v: %w: %s", command, err, out)
	}
	return nil
}
