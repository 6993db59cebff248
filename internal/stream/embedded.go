// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"errors"
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

// Embed names the server that EmbeddedURL stands for; nil means none. A program and whoever configures it know only URLs,
// and a process has one such server: so it is named here rather than in each Config.
func Embed(server nats.InProcessConnProvider) {
	embedded.Lock()
	defer embedded.Unlock()
	embedded.server = server
}

// embeddedOption has a connection that names EmbeddedURL, and no other server, go to the embedded server. A host under .invalid
// has no address (RFC 6761): where none is named, the connection fails rather than find another.
func (c Config) embeddedOption() (nats.Option, error) {
	if len(c.Servers) != 1 || c.Servers[0] != EmbeddedURL {
		return nil, nil
	}
	embedded.Lock()
	defer embedded.Unlock()
	if embedded.server == nil {
		return nil, errors.New("connect to NATS: " + EmbeddedURL + " is the server of `substorm up`, and this process runs none")
	}
	return nats.InProcessServer(embedded.server), nil
}
