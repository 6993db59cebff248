// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"net"
	"net/http"

	"golang.org/x/sys/unix"
)

// SendBuffer is what the kernel holds at most for a client that does not read, in bytes
// (where it is a stream's whole buffer, the kernel counts twice that, for its own).
const SendBuffer = 128 << 10

// Listen listens at host:port.
//
// A connection's send buffer is left to the kernel, which fits it to the path, up to
// net.ipv4.tcp_wmem (4 MiB by default). If the round trip takes 100 ms, one download gets 22 MB/s
// that way, but 2.3 MB/s with a fixed buffer of SendBuffer, and 3.4 MB/s with the largest that may
// be asked for (net.core.wmem_max, 208 KiB by default). Listen bounds the data that is in the
// buffer and not on its way (TCP_NOTSENT_LOWAT, tcp(7)), which costs no speed. A client that does
// not read soon has nothing on its way, so it costs SendBuffer; and the data on its way to all
// others is together no more than the pod's bandwidth times the time that it takes.
func Listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return listener{l.(*net.TCPListener)}, nil
}

type listener struct{ *net.TCPListener }

func (l listener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			return nil, err
		}
		if boundUnsent(c) == nil {
			return c, nil
		}
		_ = c.Close() // it is gone already
	}
}

func boundUnsent(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	failed := error(nil)
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, SendBuffer)
	})
	if err != nil {
		return err
	}
	return failed
}

type connectionKey struct{}

// WithConnection is an http.Server's ConnContext, for ConnectionOf.
func WithConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, c)
}

// ConnectionOf is what a request came by; nil where its server has no WithConnection.
func ConnectionOf(r *http.Request) net.Conn {
	c, _ := r.Context().Value(connectionKey{}).(net.Conn)
	return c
}

// Narrow gives the connection of a request a send buffer of SendBuffer for good. It is for live
// answers, which last as long as the client likes: there are thousands of them, and none is in a
// hurry. With HTTP/2, that applies to everything that the client asks for on the connection.
func Narrow(r *http.Request) {
	c := ConnectionOf(r)
	if secure, is := c.(interface{ NetConn() net.Conn }); is {
		c = secure.NetConn()
	}
	if tcp, is := c.(*net.TCPConn); is {
		_ = tcp.SetWriteBuffer(SendBuffer) // it fails where the client is gone
	}
}
