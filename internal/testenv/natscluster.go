// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// Bus is NATS as programs and tests use it: one server, or the nodes of a cluster.
type Bus interface {
	// URL is where clients connect.
	URL() string
	JetStream(t testing.TB) jetstream.JetStream
	Declare(t testing.TB, site string, r Registry)

	programFlags(t testing.TB) []string
}

// NATSServers are the nodes of a cluster. Each is a process of its own that can be
// killed, paused and started again.
type NATSServers struct{ Nodes []*NATSServer }

// NATSCluster starts three servers that are a cluster, and waits until JetStream
// answers at all of them. Streams may have three replicas there.
func NATSCluster(t testing.TB, opts NATSOptions) *NATSServers {
	t.Helper()
	program := Path(t, "nats-server")
	if opts.Operator {
		opts.accounts = newAccounts(t, opts.Also)
	}
	var last error
	for range 5 { // another process may take a port between the look and the start
		c := newCluster(t, program, opts)
		var starting errgroup.Group
		for _, n := range c.Nodes { // none answers before most of them run
			starting.Go(n.start)
		}
		if last = starting.Wait(); last == nil {
			return c
		}
		for _, n := range c.Nodes {
			t.Logf("start a cluster of nats-servers: %v\n%s", last, n.logTail())
			n.Kill()
		}
	}
	t.Fatalf("a cluster of nats-servers does not start: %v", last)
	return nil
}

func newCluster(t testing.TB, program string, opts NATSOptions) *NATSServers {
	t.Helper()
	var ports, routes []string
	for range 3 {
		port := fmt.Sprintf("127.0.0.1:%d", FreePort(t))
		ports, routes = append(ports, port), append(routes, "nats-route://"+port)
	}
	c := &NATSServers{}
	config := opts.Config
	for _, port := range ports {
		opts.Config = config + fmt.Sprintf("cluster {\n  name: test\n  listen: %q\n  routes: [%s]\n}\n", port, strings.Join(routes, ", "))
		c.Nodes = append(c.Nodes, newNATS(t, program, opts))
	}
	return c
}

// URL is the list of the URLs of all nodes.
func (c *NATSServers) URL() string {
	urls := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		urls[i] = n.URL()
	}
	return strings.Join(urls, ",")
}

func (c *NATSServers) programFlags(t testing.TB) []string { return c.Nodes[0].programFlags(t) }

// UserCreds is as NATSServer.UserCreds.
func (c *NATSServers) UserCreds(t testing.TB, permissions jwt.Permissions, connections ...string) string {
	t.Helper()
	return c.Nodes[0].UserCreds(t, permissions, connections...)
}

// ConsumerCreds is as NATSServer.ConsumerCreds.
func (c *NATSServers) ConsumerCreds(t testing.TB, permissions jwt.Permissions) string {
	t.Helper()
	return c.Nodes[0].ConsumerCreds(t, permissions)
}

// CommandCreds is as NATSServer.CommandCreds.
func (c *NATSServers) CommandCreds(t testing.TB, permissions jwt.Permissions) string {
	t.Helper()
	return c.Nodes[0].CommandCreds(t, permissions)
}

// Connect returns a connection to any of the nodes that ends with the test, reconnects forever, and leaves a silent node after two
// seconds.
func (c *NATSServers) Connect(t testing.TB, opts ...nats.Option) *nats.Conn {
	t.Helper()
	opts = append(append(c.Nodes[0].Options(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2)), opts...)
	nc, err := nats.Connect(c.URL(), opts...)
	if err != nil {
		t.Fatalf("connect to NATS: %v", err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// JetStream returns JetStream on a connection of its own.
func (c *NATSServers) JetStream(t testing.TB) jetstream.JetStream {
	t.Helper()
	js, err := c.Nodes[0].jetStream(c.Connect(t))
	if err != nil {
		t.Fatalf("JetStream: %v", err)
	}
	return js
}

// NodeOf returns the node that nc is connected to, nil for none.
func (c *NATSServers) NodeOf(nc *nats.Conn) *NATSServer {
	for _, n := range c.Nodes {
		if nc.ConnectedUrl() == n.URL() {
			return n
		}
	}
	return nil
}

// Named returns the node whose server has a name, as in a stream's cluster info.
func (c *NATSServers) Named(server string) *NATSServer {
	for _, n := range c.Nodes {
		if server == fmt.Sprintf("nats-%d", n.port) {
			return n
		}
	}
	return nil
}
