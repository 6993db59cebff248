// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// readAhead reads once into room and, once that is full, into ahead. So an
// object that ends in room needs no copy, and no read of its own for the few
// bytes that say how long the next one is.
func (c *connection) readAhead(room, ahead []byte) (n, m int, err error) {
	if len(ahead) == 0 {
		n, err = c.conn.Read(room)
		return n, 0, err
	}
	c.vector = [2][]byte{room, ahead}
	var result error
	err = c.raw.Read(func(fd uintptr) bool {
		for {
			if n, result = unix.Readv(int(fd), c.vector[:]); !errors.Is(result, unix.EINTR) {
				return !errors.Is(result, unix.EAGAIN)
			}
		}
	})
	switch {
	case err != nil:
		return 0, 0, err
	case result != nil:
		return 0, 0, result
	case n == 0:
		return 0, 0, io.EOF
	}
	return min(n, len(room)), max(n-len(room), 0), nil
}

// readable waits until there is something to read. Errors: io.EOF, the
// socket's, or os.ErrDeadlineExceeded.
func (c *connection) readable() error {
	var n int
	var result error
	var peek [1]byte
	if err := c.raw.Read(func(fd uintptr) bool {
		n, _, result = unix.Recvfrom(int(fd), peek[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return !errors.Is(result, unix.EAGAIN) && !errors.Is(result, unix.EINTR)
	}); err != nil {
		return err
	}
	if result == nil && n == 0 {
		return io.EOF
	}
	return result
}

// readNow reads what has arrived, without waiting and whatever the deadline; with
// nothing to read into it leaves it there. It returns how much that is, 0 for
// nothing, or -1 where the sender has ended, or reset, the connection.
func (c *connection) readNow(into []byte) int {
	flags := unix.MSG_DONTWAIT
	if into == nil {
		into, flags = make([]byte, 1), flags|unix.MSG_PEEK
	}
	n := 0
	var result error
	err := c.raw.Control(func(fd uintptr) { n, _, result = unix.Recvfrom(int(fd), into, flags) })
	switch {
	case errors.Is(result, unix.EAGAIN), errors.Is(result, unix.EINTR):
		return 0
	case err != nil, result != nil, n <= 0:
		return -1
	}
	return n
}
