// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sender

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// A peer is a real TCP server that behaves as a gateway may, good or bad.
type peer struct {
	t        *testing.T
	listener *net.TCPListener
	behave   []func(*peer, *net.TCPConn) // one for each connection; the last one also serves all later connections

	mu      sync.Mutex
	conns   int
	ended   int                 // connections that were served to their end
	objects map[wire.Digest]int // whole objects that arrived
	resets  int                 // connections that the sender reset
}

func newPeer(t *testing.T, behave ...func(*peer, *net.TCPConn)) *peer {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, listener: l, behave: behave, objects: map[wire.Digest]int{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				// As a gateway does: a death is a reset.
				if err := c.SetLinger(0); err != nil {
					t.Error(err)
				}
				p.next()(p, c)
				p.mu.Lock()
				p.ended++
				p.mu.Unlock()
			})
		}
	})
	t.Cleanup(func() { l.Close(); serving.Wait() })
	return p
}

func (p *peer) address() string { return p.listener.Addr().String() }

func (p *peer) next() func(*peer, *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns++
	return p.behave[min(p.conns, len(p.behave))-1]
}

func (p *peer) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns
}

// served is how many connections were served to their end.
func (p *peer) served() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// arrived returns how many whole objects came, repeats included, and how many different ones.
func (p *peer) arrived() (all, different int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.objects {
		all += n
	}
	return all, len(p.objects)
}

// receive reads an object until the sender's FIN.
func (p *peer) receive(c *net.TCPConn) (wire.Receipt, bool) {
	digest := sha256.New()
	n, err := io.Copy(digest, c)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if errors.Is(err, syscall.ECONNRESET) {
			p.resets++
		}
		return wire.Receipt{}, false
	}
	r := wire.Receipt{Digest: wire.Digest(digest.Sum(nil)), Bytes: n}
	p.objects[r.Digest]++
	return r, true
}

// good stores, gives the receipt and closes in peace.
func good(p *peer, c *net.TCPConn) { goodWith(" key=o/x extra=1")(p, c) }

func goodWith(trailer string) func(*peer, *net.TCPConn) {
	return func(p *peer, c *net.TCPConn) {
		if r, ok := p.receive(c); ok {
			line := r.Line()
			p.say(c, line[:len(line)-1]+trailer+"\n")
		}
	}
}

// say writes a line and closes without a reset.
func (p *peer) say(c *net.TCPConn, line string) {
	_, _ = io.WriteString(c, line)
	_ = c.SetLinger(-1)
}

// bareClose reads everything and closes without a word, as a killed gateway's kernel may.
func bareClose(p *peer, c *net.TCPConn) {
	p.receive(c)
	_ = c.SetLinger(-1)
}

// reset reads everything and dies.
func reset(p *peer, c *net.TCPConn) { p.receive(c) }

// resetEarly dies after some bytes.
func resetEarly(_ *peer, c *net.TCPConn) { _, _ = io.ReadFull(c, make([]byte, 10)) }

// wrongDigest gives the receipt of something else.
func wrongDigest(p *peer, c *net.TCPConn) {
	if r, ok := p.receive(c); ok {
		r.Digest[0] ^= 1
		p.say(c, r.Line())
	}
}

// wrongSize gives a receipt for fewer bytes.
func wrongSize(p *peer, c *net.TCPConn) {
	if r, ok := p.receive(c); ok {
		r.Bytes--
		p.say(c, r.Line())
	}
}

// unfinishedLine gives a receipt whose LF never comes.
func unfinishedLine(p *peer, c *net.TCPConn) {
	if r, ok := p.receive(c); ok {
		p.say(c, r.Line()[:len(r.Line())-1])
	}
}

// httpServer is no gateway.
func httpServer(p *peer, c *net.TCPConn) {
	p.receive(c)
	p.say(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
}

// babble never ends its line.
func babble(p *peer, c *net.TCPConn) {
	p.receive(c)
	p.say(c, string(bytes.Repeat([]byte("x"), 5000)))
}

// refuse reads everything and refuses it.
func refuse(cause wire.Cause) func(*peer, *net.TCPConn) {
	return func(p *peer, c *net.TCPConn) {
		p.receive(c)
		p.say(c, wire.Receipt{Refused: cause}.Line())
	}
}

// refuseEarly refuses after a few bytes and does not read on.
func refuseEarly(cause wire.Cause) func(*peer, *net.TCPConn) {
	return func(p *peer, c *net.TCPConn) {
		_, _ = io.ReadFull(c, make([]byte, 10))
		_, _ = io.WriteString(c, wire.Receipt{Refused: cause}.Line())
		_ = c.CloseWrite()
		p.drain(c)
	}
}

// drain keeps a connection open, without reading, until the sender ends it.
func (p *peer) drain(c *net.TCPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		p.t.Error(err)
		return
	}
	for p.t.Context().Err() == nil {
		code := 0
		if err := raw.Control(func(fd uintptr) {
			code, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR)
		}); err != nil || code != 0 {
			return
		}
		time.Sleep(5 * time.Millisecond) // only a reader notices the end of the connection
	}
}

// refuseAndReset refuses early and closes with unread bytes, so that a reset follows the line.
func refuseAndReset(cause wire.Cause) func(*peer, *net.TCPConn) {
	return func(_ *peer, c *net.TCPConn) {
		_, _ = io.ReadFull(c, make([]byte, 10))
		_, _ = io.WriteString(c, wire.Receipt{Refused: cause}.Line())
		_ = c.SetLinger(-1)
	}
}

// silence reads everything and answers nothing.
func silence(p *peer, c *net.TCPConn) {
	p.receive(c)
	<-p.t.Context().Done()
}

// stall reads nothing.
func stall(p *peer, c *net.TCPConn) {
	p.drain(c)
}

// receiptTooEarly gives a receipt for what it read so far.
func receiptTooEarly(p *peer, c *net.TCPConn) {
	first := make([]byte, 10)
	_, _ = io.ReadFull(c, first)
	_, _ = io.WriteString(c, wire.Receipt{Digest: sha256.Sum256(first), Bytes: 10}.Line())
	p.drain(c)
}

// deadAddress returns an address at which no process listens.
func deadAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
