// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/internal/certificate"
	"github.com/substorm/substorm/internal/wire"
)

// handshakeTimeout bounds a handshake: a few round trips of the slowest link.
const handshakeTimeout = 15 * time.Second

// errNoCloseNotify: anyone on the path can forge the end of a TCP connection.
var errNoCloseNotify = errors.New("the connection ended without close_notify")

// secure is TLS on a socket. It copies the bytes that crypto/tls has decrypted once, from
// a record of at most 16 KiB into the object's memory.
type secure struct {
	*tls.Conn
	socket *socket
	// stash is a byte that was read to see whether there is one.
	stash [1]byte
	have  bool
}

// socket is the transport under TLS.
type socket struct {
	*net.TCPConn
	raw syscall.RawConn
	// now: reads do not wait.
	now bool
	// finished: the sender ended the TCP connection.
	finished bool
}

// Read implements net.Conn.
func (s *socket) Read(into []byte) (n int, err error) {
	if s.now {
		n, err = receiveNow(s.raw, into, 0)
	} else {
		n, err = s.TCPConn.Read(into)
	}
	if errors.Is(err, io.EOF) {
		s.finished = true
	}
	return n, err
}

// newSecure shakes hands. Mode is wire.TLSServer or wire.TLSMutual. Errors bear the refusal's
// cause.
func newSecure(ctx context.Context, conn *net.TCPConn, certificates *certificate.Files, mode string) (*secure, *x509.Certificate, *cut) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, nil, &cut{wire.CauseReset, err}
	}
	cfg, err := certificates.Config(mode)
	if err != nil {
		return nil, nil, &cut{wire.CauseTLSHandshake, err}
	}
	under := &socket{TCPConn: conn, raw: raw}
	s := &secure{Conn: tls.Server(under, cfg), socket: under}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if err := s.HandshakeContext(ctx); err != nil {
		cause := wire.CauseTLSHandshake
		if certificate.Refused(err) {
			cause = wire.CauseBadCertificate
		}
		return nil, nil, &cut{cause, err}
	}
	return s, intake.Leaf(s.ConnectionState()), nil
}

func (s *secure) read(into []byte) (int, error) {
	if s.have && len(into) > 0 {
		into[0], s.have = s.stash[0], false
		if len(into) == 1 {
			return 1, nil
		}
		return 1 + max(s.readNow(into[1:]), 0), nil // the next read reports the end again
	}
	n, err := s.Read(into)
	return n, s.classifyEnd(err)
}

// classifyEnd distinguishes an end that the sender signed from one that anyone could forge.
func (s *secure) classifyEnd(err error) error {
	switch {
	case errors.Is(err, io.EOF) && s.socket.finished, errors.Is(err, io.ErrUnexpectedEOF):
		return &cut{wire.CauseTruncated, errNoCloseNotify}
	case errors.Is(err, io.EOF):
		return io.EOF
	}
	return err
}

func (s *secure) readAhead(space, _ []byte) (n, m int, err error) {
	n, err = s.read(space)
	return n, 0, err
}

func (s *secure) readable() error {
	if s.have {
		return nil
	}
	n, err := s.Read(s.stash[:])
	s.have = n > 0
	if s.have {
		return nil
	}
	return s.classifyEnd(err)
}

func (s *secure) readNow(into []byte) int {
	s.socket.now = true
	defer func() { s.socket.now = false }()
	if len(into) == 0 {
		if s.have {
			return 1
		}
		n, err := s.Read(s.stash[:])
		s.have = n > 0
		return answered(n, err)
	}
	if s.have {
		into[0], s.have = s.stash[0], false
		return 1
	}
	return answered(s.Read(into))
}

func answered(n int, err error) int {
	switch {
	case n > 0:
		return n
	case err == nil, errors.Is(err, os.ErrDeadlineExceeded):
		return 0
	default:
		return -1
	}
}

// farewell sends close_notify.
func (s *secure) farewell() error {
	if err := s.socket.SetWriteDeadline(time.Now().Add(sayTimeout)); err != nil {
		return err
	}
	return s.CloseWrite()
}

func (s *secure) endWriting() error { return errors.Join(s.farewell(), s.socket.CloseWrite()) }
