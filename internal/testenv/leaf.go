// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// LeafLink is a link from a leaf's NATS server to the hub's.
type LeafLink struct {
	// Address of the hub's port for leaf links (NATSServer.LeafAddress), or of a
	// Relay that leads there.
	Address string
	// CA that signed the hub's certificate; nil where it has none.
	CA *CA
	// Creds is the file of a user of the hub's.
	Creds string
	// DenyImports and DenyExports are subjects that the leaf itself lets neither in
	// nor out, whatever the hub allows.
	DenyImports, DenyExports []string
}

// leafnodes returns the part of the configuration about leaf links.
func (n *NATSServer) leafnodes(t testing.TB, certs string) string {
	t.Helper()
	var config strings.Builder
	if n.opts.TakesLeaves {
		n.leafPort = FreePort(t)
		// Without no_advertise leaves would learn of the server's own address, past a Relay.
		fmt.Fprintf(&config, "  listen: \"127.0.0.1:%d\"\n  no_advertise: true\n", n.leafPort)
		if certs != "" {
			fmt.Fprintf(&config, "  tls {\n    cert_file: %q\n    key_file: %q\n  }\n", filepath.Join(certs, "tls.crt"), filepath.Join(certs, "tls.key"))
		}
	}
	if link := n.opts.LeafOf; link != nil {
		scheme, tls := "nats-leaf", ""
		if link.CA != nil {
			ca := filepath.Join(t.TempDir(), "hub-ca.crt")
			write(t, ca, link.CA.PEM)
			scheme, tls = "tls", fmt.Sprintf("    tls {\n      ca_file: %q\n    }\n", ca)
		}
		fmt.Fprintf(&config, "  reconnect: \"1s\"\n  remotes: [{\n    url: %q\n%s", scheme+"://"+link.Address, tls)
		if link.Creds != "" {
			fmt.Fprintf(&config, "    credentials: %q\n", link.Creds)
		}
		if n.AccountID != "" {
			fmt.Fprintf(&config, "    account: %q\n", n.AccountID)
		}
		fmt.Fprintf(&config, "    deny_imports: [%s]\n    deny_exports: [%s]\n  }]\n", quoted(link.DenyImports), quoted(link.DenyExports))
	}
	if config.Len() == 0 {
		return ""
	}
	return "leafnodes {\n" + config.String() + "}\n"
}

func quoted(subjects []string) string {
	all := make([]string, len(subjects))
	for i, s := range subjects {
		all[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(all, ", ")
}

// LeafAddress is where leaves link to (NATSOptions.TakesLeaves).
func (n *NATSServer) LeafAddress() string { return Loopback(n.leafPort) }

// Relay is a TCP way to an address that can be cut and mended.
type Relay struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]struct{}
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

// Mend ends a Cut.
func (r *Relay) Mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = false
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

func (r *Relay) serve(near net.Conn) {
	if !r.take(near) {
		return
	}
	defer r.leave(near)
	far, err := net.DialTimeout("tcp", r.to, 5*time.Second)
	if err != nil || !r.take(far) {
		return
	}
	defer r.leave(far)
	var both sync.WaitGroup
	for _, way := range [2][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			_, _ = io.Copy(way[1], way[0])
			way[0].Close()
			way[1].Close()
		})
	}
	both.Wait()
}
