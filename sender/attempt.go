// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// verdict is what one connection came to.
type verdict struct {
	// receipted: the server's line equals our digest and size.
	receipted bool
	// refused is why the server did not take the object.
	refused wire.Cause
	// whole: every byte and the end were sent, so the object may be stored.
	whole bool
	// local: our own side failed, no server can help.
	local bool
	err   error
	// advised: err advises what to do about refused.
	advised bool
	// wait is how long the server asks to be left alone; 0 if it does not.
	wait time.Duration
	// progress: the server has more of the object than before, and keeps it.
	progress bool

	digest wire.Digest
	bytes  int64
	// taken is how many bytes the kernel took.
	taken int64
}

var errEmpty = errors.New("it is empty: an object has at least one byte")

// buffers carry an object from its file to its socket.
var buffers = sync.Pool{New: func() any { b := make([]byte, 128<<10); return &b }}

// maxWrite is how much is written at a time, in bytes.
const maxWrite = 32 << 10

// sender has what all connections share.
type sender struct {
	dialer net.Dialer
	// tls is nil where bytes are plain.
	tls            TLSConfig
	receiptTimeout time.Duration
	// sent is called with each number of bytes that the kernel took, and lost with
	// those that must be sent again.
	sent, lost func(int64)
	// pace, if set, returns how many of so many bytes may be written now, and waits until at least
	// one may.
	pace func(n int) int
	// writeBuffer of sockets, in bytes; 0 leaves it to the system.
	writeBuffer int
	// connected, if set, is called with the time that a server took to accept.
	connected func(time.Duration)
}

// dial connects to a server within a time; 0 is the sender's own.
func (s *sender) dial(ctx context.Context, address string, within time.Duration) (socket, error) {
	if within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	begin := time.Now()
	stream, err := s.dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if s.connected != nil {
		s.connected(time.Since(begin))
	}
	tcp := stream.(*net.TCPConn)
	// Linger 0 makes every early end of the connection (an error, Ctrl-C, SIGKILL) a reset to the
	// server and not the end of an object, so that the server archives no partial object.
	err = tcp.SetLinger(0)
	if err == nil && s.writeBuffer > 0 {
		err = tcp.SetWriteBuffer(s.writeBuffer)
	}
	var conn socket
	if err == nil {
		conn, err = s.shake(ctx, tcp, address)
	}
	if err != nil {
		_ = tcp.Close()
		return nil, err
	}
	return conn, nil
}

// attempt sends an object over one connection and waits for its receipt.
func (s *sender) attempt(ctx context.Context, address string, it item, p *pulse) verdict {
	body, err := it.open()
	if err != nil {
		return verdict{local: true, err: err}
	}
	defer body.Close()
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	n, err := io.ReadFull(body, *buffer)
	switch {
	case errors.Is(err, io.EOF):
		return verdict{local: true, err: errEmpty}
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return verdict{local: true, err: err}
	}
	tcp, err := s.dial(ctx, address, it.connectWithin)
	if err != nil {
		return verdict{err: err}
	}
	defer tcp.Close()
	defer context.AfterFunc(ctx, func() { tcp.Close() })()
	p.setConn(tcp.vitals())
	if !p.begins() {
		return verdict{err: errAside}
	}

	answer := listen(tcp)
	v := s.transmit(tcp, it, body, *buffer, n, answer)
	if v.whole {
		p.markWritten()
	}
	v = s.judge(ctx, tcp, v, answer)
	if !v.receipted {
		s.lost(v.taken)
	}
	return v
}

// line is what a server said, or why it said nothing.
type line struct {
	text string
	at   time.Time // when it was read
	err  error
}

// listen reads the server's line while we still send: a refusal may come early,
// and then ends our writing.
func listen(conn socket) <-chan line {
	answer := make(chan line, 1)
	go func() {
		text, err := readLine(conn)
		if err == nil {
			conn.vitals().heard()
		}
		answer <- line{text: text, err: err}
		if err == nil {
			_ = conn.SetWriteDeadline(time.Now())
		}
	}()
	return answer
}

// readLine reads up to the first LF.
func readLine(conn socket) (string, error) {
	var text []byte
	chunk := make([]byte, 256)
	for {
		n, err := conn.Read(chunk)
		for i, c := range chunk[:n] {
			if c == '\n' {
				return string(append(text, chunk[:i+1]...)), nil
			}
		}
		text = append(text, chunk[:n]...)
		if len(text) > wire.MaxReceiptLine {
			return "", fmt.Errorf("the server answers with more than a line (%q…): is it a gateway?", text[:32])
		}
		if err != nil {
			return "", err
		}
	}
}

// transmit sends buffer[:n] and the rest of body, then half-closes.
func (s *sender) transmit(conn socket, it item, body io.Reader, buffer []byte, n int, answer <-chan line) verdict {
	var v verdict
	digest := sha256.New()
	for n > 0 {
		digest.Write(buffer[:n])
		v.bytes += int64(n)
		taken, err := s.write(conn, buffer[:n], answer)
		v.taken += taken
		if v.err = err; err != nil || len(answer) > 0 {
			v.digest = sum(digest)
			return v
		}
		n, err = io.ReadFull(body, buffer)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return verdict{local: true, err: err, taken: v.taken}
		}
	}
	v.digest = sum(digest)
	if err := it.checkUnchanged(v.digest); err != nil {
		return verdict{local: true, err: err, taken: v.taken}
	}
	v.err = conn.CloseWrite()
	v.whole = v.err == nil
	return v
}

// write sends b unless the server answers before, and returns how much was taken.
func (s *sender) write(conn socket, b []byte, answer <-chan line) (taken int64, err error) {
	for len(b) > 0 {
		part := b[:min(len(b), maxWrite)]
		if s.pace != nil {
			conn.vitals().hold(1)
			part = part[:s.pace(len(part))]
			conn.vitals().hold(-1)
		}
		if err := conn.SetWriteDeadline(time.Now().Add(s.receiptTimeout)); err != nil {
			return taken, err
		}
		if len(answer) > 0 { // looked at after the deadline is set: listen first answers, then moves the deadline
			return taken, nil
		}
		n, err := conn.Write(part)
		taken += int64(n)
		conn.vitals().wrote(int64(n))
		s.sent(int64(n))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return taken, fmt.Errorf("the server took no byte for %v", s.receiptTimeout)
		}
		if err != nil {
			return taken, err
		}
		b = b[n:]
	}
	return taken, nil
}

// lateWord is how long we wait for a line from a server that broke our sending:
// its refusal travels just ahead of its reset.
const lateWord = 2 * time.Second

// judge waits for the server's answer and interprets it.
func (s *sender) judge(ctx context.Context, conn socket, v verdict, answer <-chan line) verdict {
	if v.local {
		return v
	}
	patience := lateWord
	if v.whole {
		patience = s.receiptTimeout
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	said := <-answer
	if err := ctx.Err(); err != nil && said.err != nil {
		v.err = err
		return v
	}
	if said.err != nil {
		if v.err == nil || !v.whole && !errors.Is(said.err, os.ErrDeadlineExceeded) {
			v.err = s.silence(said.err, v.whole)
		}
		return v
	}
	return s.read(conn, v, said.text)
}

// silence explains a connection that ended, or went on, without a line.
func (s *sender) silence(err error, whole bool) error {
	switch {
	case errors.Is(err, io.EOF) && whole:
		return errors.New("the server closed without a receipt")
	case errors.Is(err, io.EOF):
		return errors.New("the server closed before the object was sent")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no receipt within %v", s.receiptTimeout)
	default:
		return err
	}
}

// read judges the server's line, and lets a connection with a receipt end in peace.
func (s *sender) read(conn socket, v verdict, text string) verdict {
	v = v.judged(text)
	if v.receipted {
		conn.finish()
	}
	return v
}

// judged is the verdict once the server has answered with a line.
func (v verdict) judged(text string) verdict {
	receipt, err := wire.ParseReceipt(text)
	switch {
	case err != nil:
		v.err = fmt.Errorf("the server answers %q, which is not a receipt: is it a gateway?", text)
	case receipt.Refused != "":
		v.refused, v.err = receipt.Refused, fmt.Errorf("refused %s", receipt.Refused)
	case !v.whole:
		v.err = errors.New("the server gave a receipt before the object was sent")
	case receipt.Digest != v.digest || receipt.Bytes != v.bytes:
		v.err = fmt.Errorf("the receipt is for other bytes: sha-256=%s bytes=%d, sent %s bytes=%d",
			receipt.Digest, receipt.Bytes, v.digest, v.bytes)
	default:
		v.receipted, v.err = true, nil
	}
	return v
}

func sum(h hash.Hash) wire.Digest { return wire.Digest(h.Sum(nil)) }
