// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/ingest-gateway/receive/udp"
)

// socket receives the datagrams of one port. It is not one of package net: the runtime's poller is woken by every
// datagram of each socket it knows, also of one that is left alone for a while, and that costs more than reading the
// datagram (BenchmarkCPU). So the quiet reader waits for it, with all others, in epoll_wait(2); while it is busy a
// reader of its own, with a thread that waits in poll(2).
type socket struct {
	port uint16
	fd   int
	sink udp.Sink
	// quiet reads it while busy is nil.
	quiet *quiet
	// mu is held by the quiet reader while it reads the socket, and by the goroutine that changes
	// its reader.
	mu sync.Mutex
	// busy is closed when the socket's own reader has ended; nil if it has none. wake is an eventfd
	// that ends that reader's waiting.
	busy chan struct{}
	wake int
	// lost is how many datagrams the kernel dropped, as last reported to the sink. The kernel
	// counts modulo 2^32.
	lost uint32
	// pause is the least time between two looks at the socket, see pauseFor.
	pause time.Duration

	closing atomic.Bool // looked at between batches: a busy socket never waits
	once    sync.Once
}

// openSocket opens a port of an address; of the zero one on all addresses, IPv6 and IPv4.
func openSocket(address netip.Addr, port uint16, receiveBuffer int) (*socket, error) {
	local := netip.AddrPortFrom(address, port)
	if !address.IsValid() {
		local = netip.AddrPortFrom(netip.IPv6Unspecified(), port)
	}
	fd, err := bind(local, receiveBuffer)
	if !address.IsValid() && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL)) { // a machine without IPv6
		fd, err = bind(netip.AddrPortFrom(netip.IPv4Unspecified(), port), receiveBuffer)
	}
	if err != nil {
		return nil, fmt.Errorf("UDP port %d: %w", port, err)
	}
	return &socket{port: port, fd: fd, wake: -1, pause: pauseFor(fd)}, nil
}

func bind(local netip.AddrPort, receiveBuffer int) (fd int, err error) {
	family := unix.AF_INET6
	if local.Addr().Is4() {
		family = unix.AF_INET
	}
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
	var address unix.Sockaddr
	if family == unix.AF_INET {
		address = &unix.SockaddrInet4{Port: int(local.Port()), Addr: local.Addr().As4()}
	} else {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0); err != nil {
			return -1, fmt.Errorf("IPV6_V6ONLY: %w", err)
		}
		address = &unix.SockaddrInet6{Port: int(local.Port()), Addr: local.Addr().As16()}
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
	// maxPause keeps the delay far below the delay of a telemetry message.
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

// start has the quiet reader read the socket. It is called once.
func (s *socket) start(q *quiet) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quiet, s.sink = q, q.sink
	return q.add(s)
}

// begin gives the socket a reader of its own, with b. The mutex is held.
func (s *socket) begin(b *batch) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil { // no more file descriptors: the quiet reader continues
		s.quiet.readers.give(b)
		_ = s.quiet.add(s)
		return
	}
	b.port = s.port
	s.wake, s.busy = wake, make(chan struct{})
	go s.read(b, s.busy)
}

// calm is for how long a port must not have filled a batch to lose its reader.
const calm = 5 * time.Second

// read hands over batches until the socket is closed, or calm: then the quiet reader has it again.
func (s *socket) read(b *batch, ended chan struct{}) {
	defer close(ended)
	defer s.quiet.readers.give(b)
	filled := time.Now()
	for s.wait() {
		begun := time.Now()
		if begun.Sub(filled) > calm {
			if s.rest() {
				return
			}
			filled = begun
		}
		for !s.closing.Load() {
			n, errno := b.receive(uintptr(s.fd))
			if errno == unix.EAGAIN {
				break
			}
			if errno != 0 {
				time.Sleep(errorPause)
				continue
			}
			s.handOver(b, n)
			if n == batchSize {
				filled = begun
			}
			if n == batchSize || s.pause == 0 {
				continue
			}
			// The socket is nearly empty, and more may come soon.
			if rest := s.pause - time.Since(begun); rest > 0 {
				time.Sleep(rest)
			}
			begun = time.Now()
			if begun.Sub(filled) > calm {
				break
			}
		}
	}
}

// rest gives the socket back to the quiet reader, unless it is being closed.
func (s *socket) rest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() || s.quiet.add(s) != nil {
		return false
	}
	_ = unix.Close(s.wake)
	s.wake, s.busy = -1, nil
	return true
}

const (
	// errorPause is how long to wait after an error of the socket. No error ends the reading: either another
	// datagram caused it, and it is reported once (an ICMP answer, an administrator's `ss --kill`), or the
	// machine lacks memory.
	errorPause = time.Millisecond
	// drainErrors bounds how often in a row the socket of a closed port may fail.
	drainErrors = 1000
	// drainBatches bounds what is read of a port that cannot be shut: more batches than the default buffer holds.
	drainBatches = 4096
)

// drain hands over all that the kernel holds when the port is closed. The kernel drops and counts datagrams that arrive
// later: a sender that never pauses must not keep the port open.
func (s *socket) drain(b *batch) {
	b.port = s.port
	shut := s.shut() == nil
	failed := 0
	for i := 0; shut || i < drainBatches; i++ {
		n, errno := b.receive(uintptr(s.fd))
		switch {
		case errno == unix.EAGAIN, failed == drainErrors:
			return
		case errno != 0:
			failed++
			time.Sleep(errorPause)
		default:
			failed = 0
			s.handOver(b, n)
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

// idleCheck is how often a quiet socket is asked what was dropped: the kernel itself reports it only with the next
// datagram.
const idleCheck = time.Second

// wait returns true when there is something to read, or nothing came for a while, and false when the socket is being closed.
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
			return true
		case n > 0:
			return true
		}
	}
}

// handOver gives the sink a batch of n datagrams.
func (s *socket) handOver(b *batch, n int) {
	packets, lost, counted := b.packets(n, time.Now().UnixNano())
	if counted {
		s.countLost(lost)
	}
	s.sink.Packets(packets)
}

// countLost reports to the sink how many more datagrams the kernel dropped.
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

// close ends the reading, with b for what the kernel still holds; when it returns, all that was read is in the sink.
func (s *socket) close(b *batch) {
	s.once.Do(func() {
		s.closing.Store(true)
		s.mu.Lock() // the quiet reader is not at it
		busy := s.busy
		if s.quiet != nil && busy == nil {
			s.quiet.remove(s)
		}
		if busy != nil {
			_, _ = unix.Write(s.wake, one)
		}
		s.mu.Unlock()
		if busy != nil {
			<-busy
			_ = unix.Close(s.wake)
		}
		if s.quiet != nil {
			s.drain(b)
			s.countDrops()
		}
		_ = unix.Close(s.fd)
	})
}
