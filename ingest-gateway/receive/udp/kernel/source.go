// SPDX-License-Identifier: Apache-2.0

// Package kernel reads datagrams from the kernel's sockets, one socket a port,
// in batches (recvmmsg).
package kernel

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/substorm/substorm/ingest-gateway/receive/udp"
)

// Config bounds a Source.
type Config struct {
	// ReceiveBuffer of each socket in bytes, as SO_RCVBUF counts them; default
	// 16 MiB. Beyond net.core.rmem_max it needs CAP_NET_ADMIN; without it, the
	// kernel's greatest allowed size is taken.
	ReceiveBuffer int
}

const defaultReceiveBuffer = 16 << 20

// Source is a udp.PacketSource. Each socket has a goroutine of its own and
// batchSize buffers of maxDatagram bytes, of which only what datagrams really
// fill is ever resident.
type Source struct {
	cfg Config

	mu      sync.Mutex
	sockets map[uint16]*socket
	sink    udp.Sink // set by Run
	closed  bool
}

var _ udp.PacketSource = (*Source)(nil)

// New returns a source that receives nothing until Listen names ports and Run
// is called.
func New(cfg Config) *Source {
	if cfg.ReceiveBuffer <= 0 {
		cfg.ReceiveBuffer = defaultReceiveBuffer
	}
	return &Source{cfg: cfg, sockets: map[uint16]*socket{}}
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
	var closing []*socket
	for port, sock := range s.sockets {
		if !wanted[port] {
			delete(s.sockets, port)
			closing = append(closing, sock)
		}
	}
	closeAll(closing)
	return failed
}

// open opens a port's socket, and reads from it once there is a sink.
func (s *Source) open(port uint16) error {
	if s.closed {
		return errClosed
	}
	sock, err := openSocket(port, s.cfg.ReceiveBuffer)
	if err != nil {
		return err
	}
	s.sockets[port] = sock
	if s.sink != nil {
		sock.start(s.sink)
	}
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
	s.mu.Lock()
	s.sink = sink
	for _, sock := range s.sockets {
		sock.start(sink)
	}
	s.mu.Unlock()

	<-ctx.Done()

	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	closing := slices.Collect(maps.Values(s.sockets))
	clear(s.sockets)
	closeAll(closing)
	return nil
}

// closeAll closes sockets at the same time: each hands over what it still holds.
func closeAll(sockets []*socket) {
	var wg sync.WaitGroup
	for _, sock := range sockets {
		wg.Go(sock.close)
	}
	wg.Wait()
}
