// SPDX-License-Identifier: Apache-2.0

package feedserver_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// client is a consumer that remembers all that it was given.
type client struct {
	t      *testing.T
	name   string
	server *testenv.FeedServer
	text   bool
	events bool

	conn *websocket.Conn
	body *bufio.Reader
	stop func()
	// ahead has what readAhead has read; nil: nothing is read but when the test asks for it.
	ahead chan received

	token     string
	datagrams []int
	notices   []string
	gaps      []wire.Gap
	replaced  uint64
	sampled   uint64
}

func (l *lab) client(f *testenv.FeedServer, name string) *client {
	return &client{t: l.t, name: name, server: f}
}

// at is the URL of an endpoint.
func at(f *testenv.FeedServer, scheme, endpoint, consumer, resume string) string {
	q := url.Values{"consumer": {consumer}}
	if resume != "" {
		q.Set("resume", resume)
	}
	return scheme + "://" + f.Address() + "/feeds/all/" + endpoint + "?" + q.Encode()
}

func bearer(name string) http.Header {
	return http.Header{"Authorization": {"Bearer " + name + "-token"}}
}

// connect resumes where the client was.
func (c *client) connect() {
	c.t.Helper()
	if err := c.tryConnect(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) tryConnect() error {
	if c.events {
		return c.listen()
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	protocol := wire.SubprotocolBinary
	if c.text {
		protocol = wire.SubprotocolJSON
	}
	conn, _, err := websocket.Dial(ctx, at(c.server, "ws", "ws", c.name, c.token), &websocket.DialOptions{Subprotocols: []string{protocol}, HTTPHeader: bearer(c.name)})
	cancel()
	if err != nil {
		return err
	}
	conn.SetReadLimit(-1)
	c.conn = conn
	c.stop = func() { _ = conn.CloseNow() }
	c.t.Cleanup(c.stop)
	return nil
}

func (c *client) listen() error {
	ctx, cancel := context.WithCancel(c.t.Context())
	defer time.AfterFunc(patience, cancel).Stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at(c.server, "http", "events", c.name, ""), nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("anybody:"+c.name+"-token")))
	if c.token != "" {
		r.Header.Set("Last-Event-ID", c.token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		cancel()
		return err
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		cancel()
		return fmt.Errorf("events: %s", resp.Status)
	}
	c.body = bufio.NewReader(resp.Body)
	c.stop = func() { _ = resp.Body.Close(); cancel() }
	c.t.Cleanup(c.stop)
	return nil
}

// read takes what comes in one message.
func (c *client) read() error {
	if c.events {
		return c.readEvent()
	}
	kind, data, err := c.message()
	if err != nil {
		return err
	}
	if kind == websocket.MessageText {
		return c.take(data)
	}
	f, err := wire.DecodeFrame(data)
	if err != nil {
		return err
	}
	for _, r := range f.Records {
		c.replaced, c.sampled = c.replaced+r.Replaced, c.sampled+r.Sampled
		switch r.Kind {
		case wire.RecordNotice:
			n, err := wire.Decode[wire.Notice](r.Payload)
			if err != nil {
				return err
			}
			c.notices = append(c.notices, n.Name)
		case wire.RecordGap:
			g, err := wire.Decode[wire.Gap](r.Payload)
			if err != nil {
				return err
			}
			c.gaps = append(c.gaps, g)
		case wire.RecordTelemetry:
			for d, err := range wire.Datagrams(r.Payload) {
				if err != nil {
					return err
				}
				c.datagram(d.Payload)
			}
		}
	}
	c.token = f.Token
	return nil
}

func (c *client) datagram(payload []byte) {
	n, err := strconv.Atoi(string(payload[:8]))
	if err != nil {
		c.t.Errorf("payload %q", payload)
	}
	c.datagrams = append(c.datagrams, n)
}

// take takes a message of JSON.
func (c *client) take(data []byte) error {
	m, err := wire.Decode[wire.FeedMessage](data)
	if err != nil {
		return err
	}
	c.replaced, c.sampled = c.replaced+m.Replaced, c.sampled+m.Sampled
	switch {
	case m.Notice != nil:
		c.notices = append(c.notices, m.Notice.Name)
	case m.Gap != nil:
		c.gaps = append(c.gaps, *m.Gap)
	case m.Telemetry != nil:
		for _, d := range m.Telemetry.Datagrams {
			c.datagram(d.Payload)
		}
	}
	c.token = m.Token
	return nil
}

// readEvent takes the lines of one event.
func (c *client) readEvent() error {
	defer time.AfterFunc(patience, c.stop).Stop()
	var id, event string
	var data []byte
	for {
		line, err := c.body.ReadBytes('\n')
		if err != nil {
			return err
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), ": ")
		switch field {
		case "id":
			id = value
		case "event":
			event = value
		case "data":
			data = []byte(value)
		case "":
			if len(bytes.TrimSpace(line)) > 0 { // a comment
				continue
			}
			if id != "" {
				c.token = id
			}
			if data == nil {
				return nil
			}
			if event == "" {
				return fmt.Errorf("an event without a name: %s", data)
			}
			return c.take(data)
		}
	}
}

// until reads until the client has what it should.
func (c *client) until(what string, is func() bool) {
	c.t.Helper()
	for !is() {
		if err := c.read(); err != nil {
			c.t.Fatalf("%s waits for %s, has %d datagrams, %d notices, gaps %+v: %v", c.name, what, len(c.datagrams), len(c.notices), c.gaps, err)
		}
	}
}

// end reads on until the connection ends, and returns how; nil where it does not.
func (c *client) end() error {
	for patient := time.Now().Add(patience); time.Now().Before(patient); {
		if err := c.read(); err != nil {
			return err
		}
	}
	return nil
}

// expect reads until the client has datagrams up to a number, each once and in
// order.
func (c *client) expect(first, end int) {
	c.t.Helper()
	c.until(fmt.Sprintf("datagrams %d to %d", first, end), func() bool { return len(c.datagrams) >= end-first })
	for i, n := range c.datagrams {
		if n != first+i {
			c.t.Fatalf("%s: datagram %d is number %d, want %d", c.name, i, n, first+i)
		}
	}
	if len(c.datagrams) != end-first || len(c.gaps) > 0 {
		c.t.Fatalf("%s has %d datagrams, want %d; gaps %+v", c.name, len(c.datagrams), end-first, c.gaps)
	}
}
