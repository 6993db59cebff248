// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/ingest-gateway/receive/udp"
)

// socket receives the datagrams of one port.
type socket struct {
	port  uint16
	conn  *net.UDPConn
	raw   syscall.RawConn
	batch *batch
	sink  udp.Sink
	// lost is how many datagrams the kernel dropped, as last told to the sink.
	// The kernel counts modulo 2^32.
	lost uint32

	started bool
	done    chan struct{} // closed when the reading goroutine has ended
	once    sync.Once
}

// openSocket opens a port on all addresses, IPv6 and IPv4.
func openSocket(port uint16, receiveBuffer int) (*socket, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if e := raw.Control(func(fd uintptr) { err = setOptions(int(fd), receiveBuffer) }); e != nil {
			return e
		}
		return err
	}}
	conn, err := config.ListenPacket(context.Background(), "udp", ":"+strconv.Itoa(int(port)))
	if err != nil {
		return nil, fmt.Errorf("UDP port %d: %w", port, err)
	}
	udpConn, ok := conn.(*net.UDPConn)
	if !ok {
		_ = conn.Close()
		return nil, fmt.Errorf("UDP port %d: unexpected socket %T", port, conn)
	}
	raw, err := udpConn.SyscallConn()
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("UDP port %d: %w", port, err)
	}
	return &socket{port: port, conn: udpConn, raw: raw, done: make(chan struct{})}, nil
}

// setOptions asks for a large buffer, and for each datagram's arrival time and
// the count of those that were dropped before it.
func setOptions(fd, receiveBuffer int) error {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		// Without CAP_NET_ADMIN the kernel caps the size at net.core.rmem_max.
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer); err != nil {
			return fmt.Errorf("SO_RCVBUF: %w", err)
		}
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1); err != nil {
		return fmt.Errorf("SO_RXQ_OVFL: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return fmt.Errorf("SO_TIMESTAMPNS: %w", err)
	}
	return nil
}

// start begins to read. It is called once.
func (s *socket) start(sink udp.Sink) {
	s.sink, s.batch, s.started = sink, newBatch(s.port), true
	go s.read()
}

// read hands over batches until the socket's read deadline, which close sets,
// has passed; then what the kernel still holds.
func (s *socket) read() {
	defer close(s.done)
	var n int
	var errno syscall.Errno
	receive := func(fd uintptr) bool {
		n, errno = s.batch.receive(fd)
		return errno != unix.EAGAIN
	}
	for s.raw.Read(receive) == nil {
		s.handOver(n, errno)
	}
	_ = s.raw.Control(func(fd uintptr) {
		// Bounded: a sender that never pauses must not keep a closed port open.
		for range drainBatches {
			if n, errno = s.batch.receive(fd); n <= 0 {
				break
			}
			s.handOver(n, errno)
		}
		if lost, ok := droppedBy(int(fd)); ok {
			s.countLost(lost)
		}
	})
}

// drainBatches bounds what is read after a port was closed: more batches than
// the greatest receive buffer holds.
const drainBatches = 4096

// handOver gives the sink a batch of n datagrams. Errors of single datagrams
// (an ICMP answer to nobody) are no reason to stop.
func (s *socket) handOver(n int, errno syscall.Errno) {
	if errno != 0 || n <= 0 {
		return
	}
	packets, lost, counted := s.batch.packets(n, time.Now().UnixNano())
	if counted {
		s.countLost(lost)
	}
	s.sink.Packets(packets)
}

// countLost tells the sink how many more datagrams the kernel dropped.
func (s *socket) countLost(total uint32) {
	if n := total - s.lost; n > 0 && n < 1<<31 {
		s.lost = total
		s.sink.Lost(s.port, uint64(n))
	}
}

// close ends the reading; when it returns, all that was read is in the sink.
func (s *socket) close() {
	s.once.Do(func() {
		if s.started {
			_ = s.conn.SetReadDeadline(time.Unix(1, 0))
			<-s.done
		}
		_ = s.conn.Close()
	})
}
