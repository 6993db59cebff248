// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"io/fs"
	"syscall"
)

// changed is when the kernel last saw a file change, in nanoseconds; 0 if it is unknown. It differs for each version that replaces
// another, also if a camera dates all of them alike, and if a version gets the inode of an earlier one.
func changed(info fs.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ctim.Nano()
	}
	return 0
}
