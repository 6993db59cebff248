// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// kernel queries a client's connection and sets its options. Without a TCP socket it does nothing.
type kernel struct{ raw syscall.RawConn }

func newKernel(c net.Conn) kernel {
	if tcp, is := c.(*net.TCPConn); is {
		if raw, err := tcp.SyscallConn(); err == nil {
			return kernel{raw}
		}
	}
	return kernel{}
}

// acknowledge acknowledges what a client sent as soon as it is read.
//
// rsync's client writes little at a time and leaves Nagle's algorithm on, so that its
// kernel holds what it writes next until the last is acknowledged; and ours waits 40 ms
// with that, in case there is an answer to send along. Beginning and end of a transfer have
// several such waits: 130 ms of the 190 that a run over loopback takes in which nothing
// changed. The kernel forgets the option (tcp(7)), so it is set after each read.
func (k kernel) acknowledge() {
	if k.raw == nil {
		return
	}
	_ = k.raw.Control(func(fd uintptr) { // it fails where the client is gone
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1)
	})
}

// isClosed reports whether the client has closed the connection, though what it sent before may not have been read yet.
func (k kernel) isClosed() (gone bool) {
	if k.raw == nil {
		return false
	}
	err := k.raw.Control(func(fd uintptr) {
		is := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(is, 0)
		gone = err == nil && n > 0
	})
	return gone || err != nil
}

// queued is how many bytes were written that the other side has not acknowledged: megabytes, on a slow link.
func (k kernel) queued() (bytes int64) {
	if k.raw == nil {
		return 0
	}
	_ = k.raw.Control(func(fd uintptr) {
		if n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
			bytes = int64(n)
		}
	})
	return bytes
}
