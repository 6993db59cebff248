// SPDX-License-Identifier: Apache-2.0

// Package relay passes TCP on to a server and counts what goes over it.
package relay

import (
	"bytes"
	"net"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
)

// Relay is one way to a server.
type Relay struct {
	address         string
	bytes, requests atomic.Int64
}

// Start opens a relay to an address, which ends with the lab.
func Start(l testing.TB, target string) (*Relay, error) {
	listener, err := net.Listen("tcp", testenv.Loopback(0))
	if err != nil {
		return nil, err
	}
	l.Cleanup(func() { _ = listener.Close() })
	r := &Relay{address: listener.Addr().String()}
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				_ = in.Close()
				continue
			}
			go r.pass(out, in, &r.requests)
			go r.pass(in, out, nil)
		}
	}()
	return r, nil
}

// Address is what stands for the server's.
func (r *Relay) Address() string { return r.address }

// URL is where a path is asked for.
func (r *Relay) URL(path string) string { return "http://" + r.address + path }

// Bytes that went over it, both ways.
func (r *Relay) Bytes() int64 { return r.bytes.Load() }

// Requests that went over it. Clients of HTTP/1.1 wait for an answer before they ask
// again, so each begins what is read at a time.
func (r *Relay) Requests() int64 { return r.requests.Load() }

func (r *Relay) pass(to, from net.Conn, requests *atomic.Int64) {
	defer to.Close()
	defer from.Close()
	part := make([]byte, 64<<10)
	for {
		n, err := from.Read(part)
		if requests != nil && begins(part[:n]) {
			requests.Add(1)
		}
		r.bytes.Add(int64(n))
		if _, err := to.Write(part[:n]); err != nil {
			return
		}
		if err != nil {
			return // both are closed: a page that has hung up wants no more
		}
	}
}

func begins(p []byte) bool {
	return slices.ContainsFunc([]string{"GET ", "HEAD ", "OPTIONS "}, func(method string) bool { return bytes.HasPrefix(p, []byte(method)) })
}
