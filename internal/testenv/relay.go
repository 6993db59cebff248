// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Relay is a TCP way to an address that can be cut, or made silent, and mended.
type Relay struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]struct{}
	// silent is open while nothing passes, and closed by Mend; nil while all passes.
	silent chan struct{}
	// held counts connections that were opened while nothing passes.
	held int
}

// StartRelay opens a way to an address; it ends with the test.
func StartRelay(t testing.TB, to string) *Relay {
	t.Helper()
	r := &Relay{listener: must(net.Listen("tcp", "127.0.0.1:0"))(t), to: to, conns: map[net.Conn]struct{}{}}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := r.listener.Accept()
			if err != nil {
				return
			}
			served.Go(func() { r.serve(conn) })
		}
	})
	t.Cleanup(func() {
		r.listener.Close()
		r.Mend()
		r.Cut()
		served.Wait()
	})
	return r
}

// Address is where the way begins.
func (r *Relay) Address() string { return r.listener.Addr().String() }

// Cut ends every connection, without a word to either end, and lets no new one through.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = true
	for conn := range r.conns {
		conn.Close()
	}
}

// Hang has connections stay, and new ones be accepted, and nothing pass on any of them, as
// where the network loses packets or a server is stuck.
func (r *Relay) Hang() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.silent == nil {
		r.silent, r.held = make(chan struct{}), 0
	}
}

// Held is how many connections were opened since Hang.
func (r *Relay) Held() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}

// Mend ends a Cut, and a Hang: what waited passes.
func (r *Relay) Mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = false
	if r.silent != nil {
		close(r.silent)
		r.silent = nil
	}
}

// take notes a connection, or closes it where the way is cut.
func (r *Relay) take(conn net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut {
		conn.Close()
		return false
	}
	r.conns[conn] = struct{}{}
	return true
}

func (r *Relay) leave(conn net.Conn) {
	conn.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, conn)
}

// wait returns once something may pass.
func (r *Relay) wait(opened bool) {
	r.mu.Lock()
	silent := r.silent
	if opened && silent != nil {
		r.held++
	}
	r.mu.Unlock()
	if silent != nil {
		<-silent
	}
}

func (r *Relay) serve(near net.Conn) {
	if !r.take(near) {
		return
	}
	defer r.leave(near)
	r.wait(true)
	far, err := net.DialTimeout("tcp", r.to, 5*time.Second)
	if err != nil || !r.take(far) {
		return
	}
	defer r.leave(far)
	var both sync.WaitGroup
	for _, way := range [2][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			r.pass(way[1], way[0])
			way[0].Close()
			way[1].Close()
		})
	}
	both.Wait()
}

// pass copies until one end closes. While the relay passes nothing, an end is not notified that the other closed.
func (r *Relay) pass(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		r.wait(false)
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
