// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// unacked returns the number of written bytes that the other machine has not acknowledged yet
// (tcp(7), SIOCOUTQ); false if it is unknown.
func unacked(raw syscall.RawConn) (n int64, known bool) {
	err := raw.Control(func(fd uintptr) {
		waiting, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		n, known = int64(waiting), err == nil
	})
	return n, known && err == nil
}
