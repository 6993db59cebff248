// SPDX-License-Identifier: Apache-2.0

// Package kernel reads datagrams from the kernel's sockets, one socket a port,
// in batches (recvmmsg).
package kernel

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"sync"

	"github.com/substorm/substorm/ingest-gateway/receive/udp"
)

// Config bounds a Source.
type Config struct {
	// ReceiveBuffer of each socket in bytes, as SO_RCVBUF counts them; default
	// 16 MiB. Beyond net.core.rmem_max it needs CAP_NET_ADMIN; without it, the
	// kernel's greatest allowed size is taken.
	ReceiveBuffer int
	// Memory in bytes bounds what datagrams are read into; 0 is MaxMemory. Less than that means that
	// fewer busy ports have a reader of their own, down to none.
	Memory int64
	// Address is the IP address on which ports are opened; the zero one: all, of IPv6 and IPv4.
	Address netip.Addr
}

const defaultReceiveBuffer = 16 << 20

// ownBatches are the quiet reader's and the one with which ports are closed.
const ownBatches = 2

// MaxMemory is what a Source reads into at most, in bytes, however many ports there are: two busy ports for
// each processor have a reader of their own, since more would only wait for each other.
func MaxMemory() int64 { return int64(2*runtime.NumCPU()+ownBatches) * batchMemory }

// Source is a udp.PacketSource. One goroutine reads the sockets to which little comes; the busiest have one each. Each
// goroutine has batchSize buffers of maxDatagram bytes, and only the bytes that datagrams fill are ever resident.
type Source struct {
	cfg     Config
	readers *readers

	mu      sync.Mutex
	sockets map[uint16]*socket
	// Set by Run: what reads, and the batch with which ports are closed.
	quiet  *quiet
	spare  *batch
	closed bool
}

var _ udp.PacketSource = (*Source)(nil)

// New returns a source that receives nothing until Listen names ports and Run
// is called.
func New(cfg Config) *Source {
	if cfg.ReceiveBuffer <= 0 {
		cfg.ReceiveBuffer = defaultReceiveBuffer
	}
	memory := MaxMemory()
	if cfg.Memory > 0 {
		memory = min(memory, cfg.Memory)
	}
	busy := max(memory/batchMemory-ownBatches, 0)
	return &Source{cfg: cfg, sockets: map[uint16]*socket{}, readers: newReaders(int(busy))}
}

// errClosed answers Listen after Run has ended.
var errClosed = errors.New("the packet source is closed")

// Listen implements udp.PacketSource.
func (s *Source) Listen(ports []uint16) map[uint16]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	failed := map[uint16]error{}
	wanted := make(map[uint16]bool, len(ports))
	for _, port := range ports {
		wanted[port] = true
		if s.sockets[port] != nil {
			continue
		}
		if err := s.open(port); err != nil {
			failed[port] = err
		}
	}
	for port, sock := range s.sockets {
		if !wanted[port] {
			delete(s.sockets, port)
			sock.close(s.spare)
		}
	}
	return failed
}

// open opens a port's socket, and reads from it once there is a sink.
func (s *Source) open(port uint16) error {
	if s.closed {
		return errClosed
	}
	sock, err := openSocket(s.cfg.Address, port, s.cfg.ReceiveBuffer)
	if err != nil {
		return err
	}
	if s.quiet != nil {
		if err := sock.start(s.quiet); err != nil {
			sock.close(s.spare)
			return err
		}
	}
	s.sockets[port] = sock
	return nil
}

// Fill is how full the kernel's buffer of the fullest port is, 0 to 1.
func (s *Source) Fill() (most float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sock := range s.sockets {
		most = max(most, fillOf(sock.fd))
	}
	return most
}

// Run implements udp.PacketSource.
func (s *Source) Run(ctx context.Context, sink udp.Sink) error {
	err := s.start(sink)
	if err == nil {
		<-ctx.Done()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, sock := range s.sockets {
		sock.close(s.spare)
	}
	clear(s.sockets)
	if s.quiet != nil {
		s.quiet.close()
		s.spare.free()
	}
	return err
}

// start begins to read what is open.
func (s *Source) start(sink udp.Sink) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	spare, err := newBatch()
	if err != nil {
		return err
	}
	q, err := newQuiet(sink, s.readers)
	if err != nil {
		spare.free()
		return err
	}
	s.quiet, s.spare = q, spare
	go q.run()
	for _, sock := range s.sockets {
		if err := sock.start(q); err != nil {
			return err
		}
	}
	return nil
}
