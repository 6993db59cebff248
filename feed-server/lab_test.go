// SPDX-License-Identifier: Apache-2.0

package feedserver_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/e2e/parts"
	"github.com/substorm/substorm/internal/wire"
)

const (
	site = "hub"
	// patience is how long a test waits for what must come.
	patience = 90 * time.Second
)

// lab is a Site with NATS and its registry; feed servers are started by tests.
type lab struct {
	t        *testing.T
	nats     *parts.NATSServer
	js       jetstream.JetStream
	registry parts.Registry
	next     int // datagram
	// id is that of the next message, if it has one.
	id string
}

// newLab has a Feed "all" of mag-1, mag-2 and cam-1, and consumers as they are
// given, whose token is their name and "-token".
func newLab(t *testing.T, consumers ...wire.ConsumerEntry) *lab {
	t.Helper()
	l := &lab{t: t, nats: parts.NATS(t, parts.NATSOptions{Unsynced: true})}
	l.js = l.nats.JetStream(t)
	parts.CreateSite(t, l.js, site)
	for _, name := range []string{"mag-1", "mag-2", "cam-1"} {
		l.registry.Instruments = append(l.registry.Instruments, wire.InstrumentEntry{Instrument: name})
	}
	l.registry.Feeds = []wire.FeedEntry{{
		UID: "all", Feed: "all", Notices: wire.NoticeStream(site), Telemetry: wire.ObservationStream(site), Instruments: []string{"mag-1", "mag-2", "cam-1"},
	}}
	l.registry.Consumers = consumers
	l.declare()
	return l
}

// declare writes the registry, as another revision.
func (l *lab) declare() {
	l.t.Helper()
	l.registry.Revision++
	l.nats.Declare(l.t, site, l.registry)
}

func consumer(name, delivery string, change ...func(*wire.ConsumerEntry)) wire.ConsumerEntry {
	c := wire.ConsumerEntry{
		UID: name, Consumer: name, Feed: "all", Flow: wire.FlowEntry{Mode: wire.FlowAll}, Delivery: delivery,
		Tokens: []wire.TokenHash{hash(name)},
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func hash(name string) wire.TokenHash { return wire.HashToken([]byte(name), name+"-token") }

func (l *lab) start(flags ...string) *parts.FeedServer {
	l.t.Helper()
	return parts.StartFeedServer(l.t, parts.FeedServerOptions{Site: site, NATS: l.nats, Flags: append([]string{"--log-level", "debug"}, flags...)})
}

// telemetry publishes a message of datagrams, each with its number and so many
// bytes in all.
func (l *lab) telemetry(instrument string, datagrams, size int) {
	l.t.Helper()
	b := wire.AppendTelemetryHeader(nil, instrument, "raw")
	at := time.Now()
	for range datagrams {
		payload := make([]byte, max(size, 8))
		copy(payload, fmt.Sprintf("%08d", l.next))
		b = wire.AppendDatagram(b, wire.Datagram{ReceivedAt: at.Add(time.Duration(l.next)), Source: netip.MustParseAddrPort("192.0.2.7:4000"), Payload: payload})
		l.next++
	}
	m := nats.NewMsg(wire.ObservationSubject(site, instrument, "raw"))
	m.Data = b
	m.Header.Set(wire.HeaderDatagrams, strconv.Itoa(datagrams))
	if l.id != "" {
		m.Header.Set(wire.HeaderMessageID, l.id)
	}
	l.publish(m)
}

// notice publishes the notice of an object.
func (l *lab) notice(instrument, name string) {
	l.t.Helper()
	n := wire.Notice{Site: site, Instrument: instrument, Record: wire.Record{
		ID: "o/" + name, Key: "o/" + name, Name: name, State: wire.StateCurrent, ReceivedAt: time.Now(), TimeSource: wire.TimeSourceReceived,
	}}
	data, err := n.Encode()
	if err != nil {
		l.t.Fatal(err)
	}
	m := nats.NewMsg(wire.NoticeSubject(site, instrument))
	m.Data = data
	l.publish(m)
}

func (l *lab) publish(m *nats.Msg) {
	l.t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		_, err := l.js.PublishMsg(l.t.Context(), m)
		if err == nil {
			return
		}
		if time.Now().After(until) {
			l.t.Fatal(err)
		}
	}
}

// client is a consumer that remembers all that it was given.
type client struct {
	t      *testing.T
	name   string
	server *parts.FeedServer
	text   bool
	events bool

	conn *websocket.Conn
	body *bufio.Reader
	stop func()

	token     string
	datagrams []int
	notices   []string
	gaps      []wire.Gap
	replaced  uint64
	sampled   uint64
}

func (l *lab) client(f *parts.FeedServer, name string) *client {
	return &client{t: l.t, name: name, server: f}
}

// at is the URL of a door.
func at(f *parts.FeedServer, scheme, door, consumer, resume string) string {
	q := url.Values{"consumer": {consumer}}
	if resume != "" {
		q.Set("resume", resume)
	}
	return scheme + "://" + f.Address() + "/feeds/all/" + door + "?" + q.Encode()
}

func bearer(name string) http.Header {
	return http.Header{"Authorization": {"Bearer " + name + "-token"}}
}

// connect goes on where the client was.
func (c *client) connect() {
	c.t.Helper()
	if err := c.tryConnect(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) tryConnect() error {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	if c.events {
		return c.listen(ctx, cancel)
	}
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

func (c *client) listen(ctx context.Context, cancel func()) error {
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
	c.body = newReader(resp.Body)
	c.stop = func() { _ = resp.Body.Close(); cancel() }
	c.t.Cleanup(c.stop)
	return nil
}

// read takes what comes in one message.
func (c *client) read() error {
	if c.events {
		return c.readEvent()
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	kind, data, err := c.conn.Read(ctx)
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
			n, err := wire.DecodeNotice(r.Payload)
			if err != nil {
				return err
			}
			c.notices = append(c.notices, n.Name)
		case wire.RecordGap:
			g, err := wire.DecodeGap(r.Payload)
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
	m, err := wire.DecodeFeedMessage(data)
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

// get asks a door, and returns the status and the body.
func get(t *testing.T, url string, header http.Header) (int, string, http.Header) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Type") == "text/event-stream" {
		return resp.StatusCode, "", resp.Header
	}
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), resp.Header
}

// metric returns the sum of a metric's series whose line holds a part.
func metric(t *testing.T, f *parts.FeedServer, name, part string) float64 {
	t.Helper()
	_, body, _ := get(t, f.Metrics(), nil)
	sum := 0.0
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == '{' || rest[0] == ' ') && strings.Contains(line, part) {
			value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += value
		}
	}
	return sum
}

func newReader(r io.Reader) *bufio.Reader { return bufio.NewReader(r) }
