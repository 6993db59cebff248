// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sender

import (
	"io/fs"
	"syscall"
)

// inode is the number that the file system gives a file; 0 where it has none. A file that takes another one's place has another.
func inode(info fs.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Ino)
	}
	return 0
}
