// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// EmbeddedURL is the URL of the NATS server that runs in this process. Connect reaches it without a socket, once Embed
// has named it.
const EmbeddedURL = "nats://embedded.invalid:4222"

var embedded struct {
	sync.Mutex
	server nats.InProcessConnProvider
}

// Embed names the server that EmbeddedURL stands for; nil means none. A program and its configuration know only URLs, and a process has
// one such server: so it is named here rather than in each Config.
func Embed(server nats.InProcessConnProvider) {
	embedded.Lock()
	defer embedded.Unlock()
	embedded.server = server
}

// Sync returns once the disk has a message that a stream of the embedded server acknowledged, and all before it. Other servers sync as
// their configuration says.
func Sync(ctx context.Context, nc *nats.Conn, name string, sequence uint64) error {
	server, ok := nc.Opts.InProcessServer.(interface {
		SyncStream(ctx context.Context, name string, sequence uint64) error
	})
	if !ok {
		return nil
	}
	return server.SyncStream(ctx, name, sequence)
}

// minBatchOf is from how many messages on a batch is worth it at an embedded server; 0: it is not known.
func minBatchOf(nc *nats.Conn) int {
	server, ok := nc.Opts.InProcessServer.(interface{ MinBatch() int })
	if !ok {
		return 0
	}
	return server.MinBatch()
}

// SocketScheme begins the URL of a server at a Unix socket, which ends with the socket's path: unix:///run/nats.sock.
const SocketScheme = "unix://"

// localOption has a connection that names EmbeddedURL, and no other server, go to the embedded server, and one that names a Unix socket
// to that. A host under .invalid has no address (RFC 6761): where no server is named, the connection fails rather than find another.
func (c Config) localOption() (nats.Option, error) {
	if len(c.Servers) != 1 {
		return nil, nil
	}
	if path, ok := strings.CutPrefix(c.Servers[0], SocketScheme); ok {
		return nats.SetCustomDialer(socket(path)), nil
	}
	if c.Servers[0] != EmbeddedURL {
		return nil, nil
	}
	embedded.Lock()
	defer embedded.Unlock()
	if embedded.server == nil {
		return nil, errors.New("connect to NATS: " + EmbeddedURL + " is the server of `substorm up`, and this process runs none")
	}
	return nats.InProcessServer(embedded.server), nil
}

// socket is the path of a Unix socket, to which all is dialed.
type socket string

// Dial implements nats.CustomDialer.
func (s socket) Dial(string, string) (net.Conn, error) {
	return net.DialTimeout("unix", string(s), dialTimeout)
}

// SkipTLSHandshake has no TLS on the socket: who may open it is said by the rights of its file.
func (s socket) SkipTLSHandshake() bool { return true }

// urls are the servers as the library reads them.
func (c Config) urls() string {
	if len(c.Servers) == 1 && strings.HasPrefix(c.Servers[0], SocketScheme) {
		return EmbeddedURL // where the socket leads
	}
	return strings.Join(c.Servers, ",")
}
