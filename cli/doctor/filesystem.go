// SPDX-License-Identifier: Apache-2.0

//go:build linux

package doctor

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// kind is what a power cut does to a file system.
type kind string

const (
	// onDisk keeps what was synced, as far as the disk does.
	onDisk kind = "disk"
	// inMemory keeps nothing.
	inMemory kind = "memory"
	// ofContainer lies on a disk, and goes with its container.
	ofContainer kind = "container"
	// elsewhere is kept by another computer, or by a program: these know what they sync.
	elsewhere kind = "elsewhere"
)

// kinds by the numbers of statfs(2); what is not named is on a disk.
var kinds = map[uint32]kind{
	unix.TMPFS_MAGIC: inMemory, unix.RAMFS_MAGIC: inMemory, unix.OVERLAYFS_SUPER_MAGIC: ofContainer,
	unix.NFS_SUPER_MAGIC: elsewhere, unix.SMB_SUPER_MAGIC: elsewhere, unix.SMB2_SUPER_MAGIC: elsewhere, unix.CIFS_SUPER_MAGIC: elsewhere,
	unix.V9FS_MAGIC: elsewhere, unix.FUSE_SUPER_MAGIC: elsewhere, unix.CEPH_SUPER_MAGIC: elsewhere, unix.AFS_SUPER_MAGIC: elsewhere,
}

// filesystem is the one that the data folder is on.
type filesystem struct {
	kind kind
	// name is its type, and on which device it is.
	name string
	// unsafe is an option by which a sync does not wait for the disk; empty if there is none.
	unsafe string
	// free and size are the space that is left and the space in all, in bytes; freeFiles and files are
	// the same in files, and zero if the file system does not count them.
	free, size, freeFiles, files uint64
}

// filesystemOf returns the file system of a folder.
func filesystemOf(dir string) (filesystem, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return filesystem{}, fmt.Errorf("file system of %s: %w", dir, err)
	}
	found := filesystem{kind: onDisk, free: stat.Bavail * uint64(stat.Bsize), size: stat.Blocks * uint64(stat.Bsize), freeFiles: stat.Ffree, files: stat.Files}
	if k, known := kinds[uint32(stat.Type)]; known {
		found.kind = k
	}
	found.name = fmt.Sprintf("file system of type %#x", stat.Type)
	if m := mountOf(dir); m != nil {
		found.name = fmt.Sprintf("%s on %s", m.FSType, m.Source)
		for _, option := range []string{"nobarrier", "barrier"} {
			if value, there := m.SuperOptions[option]; there && (option == "nobarrier" || value == "0") {
				found.unsafe = strings.TrimSuffix(option+"="+value, "=")
			}
		}
	}
	return found, nil
}

// mountOf is the mount that a folder is in: of those whose path begins it the longest, and of equal ones the last, which hides the others.
func mountOf(dir string) (found *procfs.MountInfo) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil
	}
	mounts, err := procfs.GetMounts()
	if err != nil {
		return nil
	}
	for _, m := range mounts {
		within := dir == m.MountPoint || strings.HasPrefix(dir, strings.TrimSuffix(m.MountPoint, "/")+"/")
		if within && (found == nil || len(m.MountPoint) >= len(found.MountPoint)) {
			found = m
		}
	}
	return found
}
