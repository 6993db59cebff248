// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"io"
	"net"
	"sync"
	"testing"
)

// oldServer is an RTEMP: it appends what each connection brings to one run of
// bytes, once the connection has ended well, and drops what a reset cut off.
type oldServer struct {
	t       *testing.T
	address string

	mu          sync.Mutex
	got         []byte
	connections int
	cut         int
	// hold keeps it from reading; open waits for it to end.
	hold     sync.RWMutex
	listener net.Listener
	serving  sync.WaitGroup
}

func newOldServer(t *testing.T) *oldServer {
	s := &oldServer{t: t}
	s.up()
	s.address = s.listener.Addr().String()
	t.Cleanup(s.down)
	return s
}

// up listens, on the same port each time.
func (s *oldServer) up() {
	s.t.Helper()
	address := s.address
	if address == "" {
		address = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.listener = l
	s.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.serving.Go(func() { s.serve(conn) })
		}
	})
}

func (s *oldServer) serve(conn net.Conn) {
	defer conn.Close()
	s.hold.RLock()
	defer s.hold.RUnlock()
	data, err := io.ReadAll(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.cut++
		return
	}
	s.connections++
	s.got = append(s.got, data...)
}

// down stops the server: no process listens.
func (s *oldServer) down() {
	s.listener.Close()
	s.serving.Wait()
}

func (s *oldServer) received() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.got)
}
