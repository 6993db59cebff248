// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package sender

import "syscall"

// unacked returns false: this system does not report what the other machine has.
func unacked(syscall.RawConn) (n int64, known bool) { return 0, false }
