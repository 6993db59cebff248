// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/ingest-gateway/receive/udp"
)

// socket receives the datagrams of one port. It is not one of package net: the runtime's poller is woken by every
// datagram of each socket it knows, also of one that is left alone for a while, and that costs more than reading the
// datagram (BenchmarkCPU). So each socket has a thread that waits in poll(2).
type socket struct {
	port  uint16
	fd    int
	wake  int // an eventfd that ends the waiting
	batch *batch
	sink  udp.Sink
	// lost is how many datagrams the kernel dropped, as last told to the sink.
	// The kernel counts modulo 2^32.
	lost uint32
	// pause is the least time between two looks at the socket, see pauseFor.
	pause time.Duration

	started bool
	closing atomic.Bool   // looked at between batches: a busy socket never waits
	done    chan struct{} // closed when the reading goroutine has ended
	once    sync.Once
}

// openSocket opens a port on all addresses, IPv6 and IPv4.
func openSocket(port uint16, receiveBuffer int) (*socket, error) {
	fd, err := bind(unix.AF_INET6, port, receiveBuffer)
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL) { // a machine without IPv6
		fd, err = bind(unix.AF_INET, port, receiveBuffer)
	}
	if err != nil {
		return nil, fmt.Errorf("UDP port %d: %w", port, err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("UDP port %d: eventfd: %w", port, err)
	}
	return &socket{port: port, fd: fd, wake: wake, pause: pauseFor(fd), done: make(chan struct{})}, nil
}

func bind(family int, port uint16, receiveBuffer int) (fd int, err error) {
	fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	if err := setOptions(fd, receiveBuffer); err != nil {
		return -1, err
	}
	var address unix.Sockaddr = &unix.SockaddrInet4{Port: int(port)}
	if family == unix.AF_INET6 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0); err != nil {
			return -1, fmt.Errorf("IPV6_V6ONLY: %w", err)
		}
		address = &unix.SockaddrInet6{Port: int(port)}
	}
	if err := unix.Bind(fd, address); err != nil {
		return -1, fmt.Errorf("bind: %w", err)
	}
	return fd, nil
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

const (
	// maxPause keeps the delay far below that of a telemetry message.
	maxPause = time.Millisecond
	// minPause is where waiting costs as much as it saves.
	minPause = 100 * time.Microsecond
	// frameSize is what a frame takes of a receive buffer, in bytes, whatever its payload: measured, a buffer of 16 MiB
	// (which the kernel doubles) holds 7,900.
	frameSize = 4 << 10
	// fastest is more datagrams a second than a kernel takes in for one socket.
	fastest = 500_000
)

// pauseFor returns how long a busy socket is left alone, so that datagrams gather: a wake-up costs as much as several
// datagrams. Within that time not even the fastest burst fills half of the buffer. A datagram that comes after a time of
// quiet never waits.
func pauseFor(fd int) time.Duration {
	size, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return 0
	}
	pause := time.Duration(size/frameSize/2) * time.Second / fastest
	if pause < minPause {
		return 0
	}
	return min(pause, maxPause)
}

// start begins to read. It is called once.
func (s *socket) start(sink udp.Sink) {
	s.sink, s.batch, s.started = sink, newBatch(s.port), true
	go s.read()
}

// read hands over batches until close ends the waiting; then what the kernel still holds.
func (s *socket) read() {
	defer close(s.done)
	for s.wait() {
		begun := time.Now()
		for !s.closing.Load() {
			n, errno := s.batch.receive(uintptr(s.fd))
			if errno == unix.EAGAIN {
				break
			}
			if errno != 0 {
				time.Sleep(errorPause)
				continue
			}
			s.handOver(n)
			if n == batchSize || s.pause == 0 {
				continue
			}
			// The socket is nearly empty, and more may come soon.
			if rest := s.pause - time.Since(begun); rest > 0 {
				time.Sleep(rest)
			}
			begun = time.Now()
		}
	}
	s.drain()
	s.countDrops()
}

const (
	// errorPause is how long to wait after an error of the socket. None ends the reading: it is one that another
	// datagram met, told once (an ICMP answer, an administrator's `ss --kill`), or the machine lacks memory.
	errorPause = time.Millisecond
	// drainErrors bounds how often in a row the socket of a closed port may fail.
	drainErrors = 1000
	// drainBatches bounds what is read of a port that cannot be shut: more batches than the default buffer holds.
	drainBatches = 4096
)

// drain hands over all that the kernel holds when the port is closed. What arrives later the kernel drops and counts: a
// sender that never pauses must not keep the port open.
func (s *socket) drain() {
	shut := s.shut() == nil
	failed := 0
	for i := 0; shut || i < drainBatches; i++ {
		n, errno := s.batch.receive(uintptr(s.fd))
		switch {
		case errno == unix.EAGAIN, failed == drainErrors:
			return
		case errno != 0:
			failed++
			time.Sleep(errorPause)
		default:
			failed = 0
			s.handOver(n)
		}
	}
}

// shut lets nothing more into the socket's buffer, with a filter that takes 0 bytes of every datagram. shutdown(2) does
// not do that for UDP.
func (s *socket) shut() error {
	none := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0}
	if err := unix.SetsockoptSockFprog(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &none}); err != nil {
		return fmt.Errorf("SO_ATTACH_FILTER: %w", err)
	}
	return nil
}

// idleCheck is how often a quiet socket is asked what was dropped: the kernel tells by itself only with the next datagram.
const idleCheck = time.Second

// wait returns true when there is something to read, and false when the socket is being closed.
func (s *socket) wait() bool {
	fds := [2]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}, {Fd: int32(s.wake), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds[:], int(idleCheck.Milliseconds()))
		switch {
		case s.closing.Load():
			return false
		case err != nil: // EINTR, or the machine lacks memory
			time.Sleep(errorPause)
		case n == 0:
			s.countDrops()
		case n > 0:
			return true
		}
	}
}

// handOver gives the sink a batch of n datagrams.
func (s *socket) handOver(n int) {
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

// countDrops asks how many datagrams the kernel dropped.
func (s *socket) countDrops() {
	if lost, ok := droppedBy(s.fd); ok {
		s.countLost(lost)
	}
}

// close ends the reading; when it returns, all that was read is in the sink.
func (s *socket) close() {
	s.once.Do(func() {
		s.closing.Store(true)
		if s.started {
			_, _ = unix.Write(s.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
			<-s.done
		}
		_ = unix.Close(s.fd)
		_ = unix.Close(s.wake)
	})
}
