// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// transport carries the bytes of a connection: plain, or over TLS. Reading
// belongs to one goroutine, writing to another. Deadlines are the socket's.
type transport interface {
	io.Writer
	// read reads once. Errors: io.EOF where the sender has ended what it sends, *cut
	// where it ended otherwise, os.ErrDeadlineExceeded, the socket's.
	read(into []byte) (int, error)
	// readAhead reads once into space and, once that is full, into ahead. So an
	// object that ends in space needs no copy, and no read of its own for the few
	// bytes that say how long the next one is. Errors as read.
	readAhead(space, ahead []byte) (n, m int, err error)
	// readable waits until there is something to read. Errors as read.
	readable() error
	// readNow reads what has arrived, without waiting and whatever the deadline;
	// with nothing to read into it leaves it there. It returns how much that is, 0
	// for nothing, or -1 where the sender has ended, or reset, the connection.
	readNow(into []byte) int
	// farewell says, where the transport can, that nothing more is written. The
	// close that follows says so too.
	farewell() error
	// endWriting says that nothing more is written, and leaves the connection open
	// for what is still read.
	endWriting() error
}

// plain is raw TCP: bytes go from the socket into the object's own memory.
type plain struct {
	*net.TCPConn
	raw    syscall.RawConn
	vector [2][]byte // of readAhead
}

func newPlain(conn *net.TCPConn) (*plain, error) {
	raw, err := conn.SyscallConn()
	return &plain{TCPConn: conn, raw: raw}, err
}

func (p *plain) read(into []byte) (int, error) { return p.Read(into) }

func (p *plain) readAhead(space, ahead []byte) (n, m int, err error) {
	if len(ahead) == 0 {
		n, err = p.Read(space)
		return n, 0, err
	}
	p.vector = [2][]byte{space, ahead}
	var result error
	err = p.raw.Read(func(fd uintptr) bool {
		for {
			if n, result = unix.Readv(int(fd), p.vector[:]); !errors.Is(result, unix.EINTR) {
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
	return min(n, len(space)), max(n-len(space), 0), nil
}

func (p *plain) readable() error {
	var n int
	var result error
	var peek [1]byte
	if err := p.raw.Read(func(fd uintptr) bool {
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

func (p *plain) readNow(into []byte) int {
	flags := 0
	if into == nil {
		into, flags = make([]byte, 1), unix.MSG_PEEK
	}
	switch n, err := receiveNow(p.raw, into, flags); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0
	case err != nil:
		return -1
	default:
		return n
	}
}

func (p *plain) farewell() error { return nil } // the FIN of the close

func (p *plain) endWriting() error { return p.CloseWrite() }

// receiveNow reads what has arrived, and does not wait. Errors: io.EOF, the socket's,
// os.ErrDeadlineExceeded if nothing has.
func receiveNow(raw syscall.RawConn, into []byte, flags int) (n int, err error) {
	var result error
	err = raw.Control(func(fd uintptr) { n, _, result = unix.Recvfrom(int(fd), into, flags|unix.MSG_DONTWAIT) })
	switch {
	case err != nil:
		return 0, err
	case errors.Is(result, unix.EAGAIN), errors.Is(result, unix.EINTR):
		return 0, os.ErrDeadlineExceeded
	case result != nil:
		return 0, result
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
