// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/substorm/substorm/ingest-gateway/receive/udp"
	"github.com/substorm/substorm/ingest-gateway/receive/udp/kernel"
	"github.com/substorm/substorm/internal/testenv"
)

// TestConformance checks the contract of a udp.PacketSource over loopback.
func TestConformance(t *testing.T) {
	newSource := func() udp.PacketSource { return kernel.New(kernel.Config{ReceiveBuffer: 1 << 20}) }
	t.Run("hands over what was sent", func(t *testing.T) { handsOver(t, newSource()) })
	t.Run("keeps the order of a sender", func(t *testing.T) { keepsOrder(t, newSource()) })
	t.Run("opens and closes ports", func(t *testing.T) { changesPorts(t, newSource()) })
	t.Run("counts what is lost", func(t *testing.T) { countsLoss(t, newSource()) })
	t.Run("counts what is lost until it ends", func(t *testing.T) { countsLossAtTheEnd(t, newSource()) })
	t.Run("hands over everything before it ends", func(t *testing.T) { endsCleanly(t, newSource()) })
	t.Run("says which port cannot be opened", func(t *testing.T) { reportsPorts(t, newSource()) })
}

// sink keeps copies of what it is given.
type sink struct {
	mu      sync.Mutex
	packets []udp.Packet
	lost    uint64
	gate    chan struct{} // nil, or what Packets waits for
}

func (s *sink) Packets(batch []udp.Packet) {
	if s.gate != nil {
		<-s.gate
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range batch {
		p.Payload = bytes.Clone(p.Payload)
		s.packets = append(s.packets, p)
	}
}

func (s *sink) Lost(_ uint16, n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost += n
}

func (s *sink) seen() (packets []udp.Packet, lost uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.packets, s.lost
}

// wait waits for n packets.
func (s *sink) wait(t *testing.T, n int) []udp.Packet {
	t.Helper()
	var packets []udp.Packet
	for range testenv.Attempts() {
		if packets, _ = s.seen(); len(packets) >= n {
			return packets
		}
	}
	t.Fatalf("%d packets arrived, want %d", len(packets), n)
	return nil
}

// run runs a source until the returned function is called or the test ends.
func run(t *testing.T, source udp.PacketSource, s *sink) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx, s) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func listen(t *testing.T, source udp.PacketSource, ports ...uint16) {
	t.Helper()
	for port, err := range source.Listen(ports) {
		t.Fatalf("Listen on %d: %v", port, err)
	}
}

// freePorts returns ports that are not in use.
func freePorts(t *testing.T, n int) []uint16 {
	t.Helper()
	var ports []uint16
	for range n {
		conn, err := net.ListenUDP("udp", &net.UDPAddr{})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ports = append(ports, addrPort(t, conn).Port())
	}
	return ports
}

func addrPort(t *testing.T, conn interface{ LocalAddr() net.Addr }) netip.AddrPort {
	t.Helper()
	a, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

func dial(t *testing.T, host string, port uint16) net.Conn {
	t.Helper()
	conn, err := net.Dial("udp", net.JoinHostPort(host, fmt.Sprint(port)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func send(t *testing.T, conn net.Conn, payload []byte) {
	t.Helper()
	if _, err := conn.Write(payload); err != nil {
		t.Fatal(err)
	}
}

func handsOver(t *testing.T, source udp.PacketSource) {
	port := freePorts(t, 1)[0]
	listen(t, source, port)
	s := &sink{}
	run(t, source, s)
	hosts := []string{"127.0.0.1"}
	if c, err := net.ListenPacket("udp6", "[::1]:0"); err == nil {
		_ = c.Close()
		hosts = append(hosts, "::1")
	}
	for _, host := range hosts {
		conn := dial(t, host, port)
		for _, size := range []int{0, 1, 140, 1400, 9000, 65000} {
			payload := bytes.Repeat([]byte{byte(size)}, size)
			before, _ := s.seen()
			from := time.Now()
			send(t, conn, payload)
			p := s.wait(t, len(before)+1)[len(before)]
			at := time.Unix(0, p.ReceivedAt)
			switch {
			case !bytes.Equal(p.Payload, payload) || p.Truncated:
				t.Errorf("%d bytes from %s came as %d bytes, truncated %v", size, host, len(p.Payload), p.Truncated)
			case p.Source != addrPort(t, conn):
				t.Errorf("source %v, want %v", p.Source, addrPort(t, conn))
			case p.Port != port:
				t.Errorf("port %d, want %d", p.Port, port)
			case at.Before(from.Add(-time.Second)) || at.After(time.Now().Add(time.Second)):
				t.Errorf("received at %v, sent at %v", at, from)
			}
		}
	}
}

func keepsOrder(t *testing.T, source udp.PacketSource) {
	port := freePorts(t, 1)[0]
	listen(t, source, port)
	s := &sink{}
	run(t, source, s)
	const senders, each = 4, 500
	conns := make([]net.Conn, senders)
	for i := range conns {
		conns[i] = dial(t, "127.0.0.1", port)
	}
	for n := range each {
		for _, conn := range conns {
			send(t, conn, binary.BigEndian.AppendUint32(nil, uint32(n)))
		}
		s.wait(t, (n+1-min(n, 10))*senders) // never so far ahead that a buffer could overflow
	}
	next := map[netip.AddrPort]uint32{}
	for _, p := range s.wait(t, senders*each) {
		if got := binary.BigEndian.Uint32(p.Payload); got != next[p.Source] {
			t.Fatalf("packet %d of %v came where %d was due", got, p.Source, next[p.Source])
		}
		next[p.Source]++
	}
}

func changesPorts(t *testing.T, source udp.PacketSource) {
	ports := freePorts(t, 2)
	s := &sink{}
	run(t, source, s)
	listen(t, source, ports[0])
	first := dial(t, "127.0.0.1", ports[0])
	send(t, first, []byte("a"))
	s.wait(t, 1)

	listen(t, source, ports...) // while running, and the first port continues
	send(t, first, []byte("b"))
	send(t, dial(t, "127.0.0.1", ports[1]), []byte("c"))
	s.wait(t, 3)

	send(t, first, []byte("d"))
	listen(t, source, ports[1])
	packets, _ := s.seen()
	if len(packets) != 4 {
		t.Fatalf("%d packets when Listen had closed the port, want 4: what was in its buffer was lost", len(packets))
	}
	_, _ = first.Write([]byte("e"))
	send(t, dial(t, "127.0.0.1", ports[1]), []byte("f"))
	for _, p := range s.wait(t, 5) {
		if string(p.Payload) == "e" {
			t.Fatal("a packet came from a port that is closed")
		}
	}
}

func countsLoss(t *testing.T, source udp.PacketSource) {
	port := freePorts(t, 1)[0]
	listen(t, source, port)
	s := &sink{gate: make(chan struct{})}
	stop := run(t, source, s)
	conn := dial(t, "127.0.0.1", port)
	const sent = 60_000
	payload := make([]byte, 1400)
	for range sent {
		send(t, conn, payload)
	}
	close(s.gate)
	testenv.Await(t, "drops are reported while the port is idle", func() bool {
		packets, lost := s.seen()
		return uint64(len(packets))+lost >= sent
	})
	stop()
	packets, lost := s.seen()
	if lost == 0 {
		t.Fatalf("all of %d datagrams fitted into the source: nothing was tested", sent)
	}
	if got := uint64(len(packets)) + lost; got != sent {
		t.Errorf("%d received and %d lost make %d, sent %d", len(packets), lost, got, sent)
	}
}

// A source ends while its buffer is full and overflows: what is in it and what was not taken in make what was sent.
func countsLossAtTheEnd(t *testing.T, source udp.PacketSource) {
	port := freePorts(t, 1)[0]
	listen(t, source, port)
	s := &sink{gate: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx, s) }()
	conn := dial(t, "127.0.0.1", port)
	const sent = 60_000
	payload := make([]byte, 1400)
	for range sent {
		send(t, conn, payload)
	}
	time.Sleep(200 * time.Millisecond) // until the kernel is through with them: while the sink waits, nothing says how many are on their way
	cancel()
	close(s.gate)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	packets, lost := s.seen()
	if lost == 0 {
		t.Fatalf("all of %d datagrams fitted into the source: nothing was tested", sent)
	}
	if got := uint64(len(packets)) + lost; got != sent {
		t.Errorf("%d received and %d lost make %d, sent %d", len(packets), lost, got, sent)
	}
}

func endsCleanly(t *testing.T, source udp.PacketSource) {
	port := freePorts(t, 1)[0]
	listen(t, source, port)
	s := &sink{gate: make(chan struct{})}
	stop := run(t, source, s)
	conn := dial(t, "127.0.0.1", port)
	const sent = 100
	for range sent {
		send(t, conn, []byte("x"))
	}
	time.AfterFunc(50*time.Millisecond, func() { close(s.gate) })
	stop()
	packets, lost := s.seen()
	if len(packets) != sent || lost != 0 {
		t.Errorf("%d of %d datagrams were in the sink when Run returned, %d lost", len(packets), sent, lost)
	}
	if len(source.Listen([]uint16{port})) == 0 {
		t.Error("Listen after the end opened a port that nobody reads")
	}
}

func reportsPorts(t *testing.T, source udp.PacketSource) {
	taken, err := net.ListenUDP("udp", &net.UDPAddr{})
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free := freePorts(t, 1)[0]
	port := addrPort(t, taken).Port()
	failed := source.Listen([]uint16{port, free})
	if len(failed) != 1 || failed[port] == nil {
		t.Fatalf("Listen on a port in use and a free one: %v, want an error for %d alone", failed, port)
	}
	s := &sink{}
	run(t, source, s)
	send(t, dial(t, "127.0.0.1", free), []byte("x"))
	s.wait(t, 1)
}
