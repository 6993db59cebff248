// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/ingest-gateway/receive/udp"
	"github.com/substorm/substorm/internal/testenv"
)

// gated is a sink whose Packets waits for a token.
type gated struct {
	entered, gate chan struct{}

	mu             sync.Mutex
	packets, drops int
}

func (g *gated) Packets(batch []udp.Packet) {
	g.entered <- struct{}{}
	<-g.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	g.packets += len(batch)
}

func (g *gated) Lost(_ uint16, n uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drops += int(n)
}

// open opens a socket on a free port, and dials it.
func open(t *testing.T) (*socket, net.Conn) {
	t.Helper()
	s, err := openSocket(netip.Addr{}, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSocket(t, s) })
	return s, dial(t, portOf(t, s.fd))
}

// start has a reader of its own read a socket, until the test ends.
func start(t *testing.T, s *socket, sink udp.Sink) {
	t.Helper()
	q, err := newQuiet(sink, newReaders(0))
	if err != nil {
		t.Fatal(err)
	}
	go q.run()
	t.Cleanup(func() {
		closeSocket(t, s)
		q.close()
	})
	if err := s.start(q); err != nil {
		t.Fatal(err)
	}
}

func closeSocket(t *testing.T, s *socket) {
	t.Helper()
	b, err := newBatch()
	if err != nil {
		t.Fatal(err)
	}
	s.close(b)
	b.free()
}

func portOf(t *testing.T, fd int) int {
	t.Helper()
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	switch a := name.(type) {
	case *unix.SockaddrInet6:
		return a.Port
	case *unix.SockaddrInet4:
		return a.Port
	}
	t.Fatalf("an address of %T", name)
	return 0
}

func dial(t *testing.T, port int) net.Conn {
	t.Helper()
	conn, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func send(t *testing.T, conn net.Conn, n int) {
	t.Helper()
	for range n {
		if _, err := conn.Write([]byte("datagram")); err != nil {
			t.Fatal(err)
		}
	}
}

// fail leaves a real error at a socket (ECONNREFUSED): it sends to a port without a reader.
func fail(t *testing.T, s *socket) {
	t.Helper()
	closed, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.LocalAddr().(*net.UDPAddr).AddrPort()
	var to unix.Sockaddr = &unix.SockaddrInet6{Port: int(nobody.Port()), Addr: nobody.Addr().As16()}
	if name, err := unix.Getsockname(s.fd); err == nil {
		if _, v4 := name.(*unix.SockaddrInet4); v4 {
			to = &unix.SockaddrInet4{Port: int(nobody.Port()), Addr: nobody.Addr().Unmap().As4()}
		}
	}
	closed.Close()
	// Only the socket of a connection receives ICMP answers.
	if err := unix.Connect(s.fd, to); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(s.fd, []byte("to nobody")); err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, "an error comes to the socket", func() bool {
		fds := []unix.PollFd{{Fd: int32(s.fd)}}
		_, err := unix.Poll(fds, 0)
		return err == nil && fds[0].Revents&unix.POLLERR != 0
	})
}

// A socket holds datagrams, and an error that came after them.
func TestErrorOfASocketEndsNothing(t *testing.T) {
	s, conn := open(t)
	send(t, conn, 5)
	fail(t, s)
	sink := &gated{entered: make(chan struct{}, 8), gate: make(chan struct{})}
	close(sink.gate)
	start(t, s, sink)
	within(t, sink.entered, "the datagrams are not read")
	closeSocket(t, s)
	if sink.packets != 5 || sink.drops != 0 {
		t.Errorf("%d datagrams and %d drops, sent 5", sink.packets, sink.drops)
	}
}

func TestErrorOfASocketThatIsClosed(t *testing.T) {
	s, conn := open(t)
	sink := &gated{entered: make(chan struct{}, 8), gate: make(chan struct{})}
	send(t, conn, 1)
	start(t, s, sink)
	within(t, sink.entered, "the datagram is not read") // its reader waits in the sink
	send(t, conn, 5)
	fail(t, s)
	closed := make(chan struct{})
	go func() { defer close(closed); closeSocket(t, s) }()
	testenv.Await(t, "the socket is being closed", s.closing.Load)
	close(sink.gate)
	within(t, closed, "the socket does not close")
	if sink.packets != 6 || sink.drops != 0 {
		t.Errorf("%d datagrams and %d drops, sent 6", sink.packets, sink.drops)
	}
}

// Datagrams that come after a port was shut are counted, and those that came before are read.
func TestShutPortCountsWhatComes(t *testing.T) {
	s, conn := open(t)
	send(t, conn, 5)
	if err := s.shut(); err != nil {
		t.Fatal(err)
	}
	send(t, conn, 3)
	sink := &gated{entered: make(chan struct{}, 8), gate: make(chan struct{})}
	close(sink.gate)
	start(t, s, sink)
	closeSocket(t, s)
	if sink.packets != 5 || sink.drops != 3 {
		t.Errorf("%d datagrams and %d drops, sent 5 before and 3 after", sink.packets, sink.drops)
	}
}

func within(t *testing.T, c <-chan struct{}, otherwise string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(3 * time.Minute):
		t.Fatal(otherwise)
	}
}
