// SPDX-License-Identifier: Apache-2.0

package feedserver_test

import (
	"bufio"
	"context"

	"github.com/coder/websocket"
)

// received is what was read of a connection: a message of a WebSocket, or some bytes of events.
type received struct {
	kind websocket.MessageType
	data []byte
	err  error
}

// readAhead reads from now on in the background, as browsers do, however long the test does something else. A client
// that does not read answers no ping, and is let go after half a minute.
func (c *client) readAhead() {
	conn, body, ahead := c.conn, c.body, make(chan received, 1<<14)
	c.ahead = ahead
	next := func() (r received) {
		if !c.events {
			r.kind, r.data, r.err = conn.Read(c.t.Context())
			return r
		}
		b := make([]byte, 64<<10)
		n, err := body.Read(b)
		return received{data: b[:n], err: err}
	}
	if c.events {
		c.body = bufio.NewReader(&aheadReader{ahead: ahead})
	}
	go func() {
		for {
			r := next()
			select {
			case ahead <- r:
			case <-c.t.Context().Done():
				return
			}
			if r.err != nil {
				return
			}
		}
	}()
}

// message returns the next message of a WebSocket.
func (c *client) message() (websocket.MessageType, []byte, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	if c.ahead == nil {
		return c.conn.Read(ctx)
	}
	select {
	case r := <-c.ahead:
		return r.kind, r.data, r.err
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	}
}

// aheadReader reads what readAhead has read.
type aheadReader struct {
	ahead chan received
	rest  received
}

func (r *aheadReader) Read(b []byte) (int, error) {
	for len(r.rest.data) == 0 {
		if r.rest.err != nil {
			return 0, r.rest.err
		}
		r.rest = <-r.ahead
	}
	n := copy(b, r.rest.data)
	r.rest.data = r.rest.data[n:]
	return n, nil
}
