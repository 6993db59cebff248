// SPDX-License-Identifier: Apache-2.0

package feedserver_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// Anonymous clients leave a part of one FeedConsumer's places to clients with a token: the consumer itself, and readers.
func TestAnonymousClientsKeepNobodyOutOfAConsumer(t *testing.T) {
	t.Parallel()
	l := newLab(t, consumer("few", wire.DeliveryServerSentEvents, func(c *wire.ConsumerEntry) { c.MaxConnections = 8 }))
	l.registry.Instruments[0].Access = &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}
	l.registry.Readers = []wire.ReaderEntry{{Reader: "uni", Tokens: []wire.TokenHash{hash("uni")}}}
	l.declare()
	f := l.start()
	connect := func(header http.Header) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at(f, "http", "events", "few", ""), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = header
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp.StatusCode
	}
	anonymous := 0
	for ; connect(http.Header{}) == http.StatusOK; anonymous++ {
		if anonymous == 8 {
			t.Fatal("more than maxConnections")
		}
	}
	for _, who := range []string{"few", "uni"} {
		if status := connect(bearer(who)); status != http.StatusOK {
			t.Errorf("%s, with its token, beside %d anonymous clients: %d", who, anonymous, status)
		}
	}
	if status := connect(bearer("uni")); status != http.StatusTooManyRequests {
		t.Errorf("beyond maxConnections: %d", status)
	}
}

// Each endpoint answers anonymous readers, readers and consumers as the Instruments say.
func TestWhoMayRead(t *testing.T) {
	t.Parallel()
	only := func(name string) func(*wire.ConsumerEntry) {
		return func(c *wire.ConsumerEntry) { c.Instruments = []string{name} }
	}
	l := newLab(t,
		consumer("public", wire.DeliveryServerSentEvents, only("mag-1")), consumer("restricted", wire.DeliveryServerSentEvents, only("mag-2")),
		consumer("authenticated", wire.DeliveryServerSentEvents, only("cam-1")), consumer("everything", wire.DeliveryServerSentEvents),
		consumer("sockets", wire.DeliveryWebSocket), consumer("bus", wire.DeliveryNATS),
		consumer("one", wire.DeliveryServerSentEvents, func(c *wire.ConsumerEntry) { c.MaxConnections = 1 }),
	)
	l.registry.Instruments[0].Access = &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}
	l.registry.Instruments[1].Access = &wire.AccessEntry{Live: wire.AccessRestricted, Archive: wire.AccessPublic, Readers: []string{"uni"}}
	l.registry.Readers = []wire.ReaderEntry{{Reader: "uni", Tokens: []wire.TokenHash{hash("uni")}}, {Reader: "other", Tokens: []wire.TokenHash{hash("other")}}}
	l.declare()
	f := l.start()
	basic := func(name string) http.Header {
		return http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte(":"+name+"-token"))}}
	}
	for _, c := range []struct {
		name, url string
		header    http.Header
		want      int
	}{
		{"public for an anonymous reader", at(f, "http", "events", "public", ""), nil, 200},
		{"some of it is public", at(f, "http", "events", "everything", ""), nil, 200},
		{"authenticated for an anonymous reader", at(f, "http", "events", "authenticated", ""), nil, 401},
		{"authenticated for the consumer", at(f, "http", "events", "authenticated", ""), bearer("authenticated"), 200},
		{"authenticated for the consumer, as a password", at(f, "http", "events", "authenticated", ""), basic("authenticated"), 200},
		{"authenticated for a reader", at(f, "http", "events", "authenticated", ""), bearer("other"), 200},
		{"a token of another consumer", at(f, "http", "events", "authenticated", ""), bearer("public"), 401},
		{"a token of another consumer where none is needed", at(f, "http", "events", "public", ""), bearer("authenticated"), 401},
		{"no token at all", at(f, "http", "events", "authenticated", ""), http.Header{"Authorization": {"Bearer "}}, 401},
		{"restricted for an anonymous reader", at(f, "http", "events", "restricted", ""), nil, 401},
		{"restricted for the consumer, who is not named", at(f, "http", "events", "restricted", ""), bearer("restricted"), 403},
		{"restricted for another reader", at(f, "http", "events", "restricted", ""), bearer("other"), 403},
		{"restricted for its reader", at(f, "http", "events", "restricted", ""), bearer("uni"), 200},
		{"unknown consumer", at(f, "http", "events", "nobody", ""), bearer("uni"), 404},
		{"no consumer", "http://" + f.Address() + "/feeds/all/events", bearer("uni"), 400},
		{"unknown feed", "http://" + f.Address() + "/feeds/other/events?consumer=public", nil, 404},
		{"another delivery", at(f, "http", "events", "sockets", ""), bearer("sockets"), 404},
		{"another delivery, by WebSocket", at(f, "http", "ws", "public", ""), nil, 404},
		{"delivery NATS", at(f, "http", "ws", "bus", ""), bearer("bus"), 404},
		{"no WebSocket", at(f, "http", "ws", "sockets", ""), bearer("sockets"), 426},
		{"a token that is none", at(f, "http", "events", "public", "7"), nil, 400},
		{"a place that is not there", at(f, "http", "events", "public", "~"+epoch(t, l)+"-1000-0"), nil, 400},
		{"no ticket", at(f, "http", "events", "authenticated", "") + "&ticket=x", nil, 401},
	} {
		status, body, header := get(t, c.url, c.header)
		if status != c.want {
			t.Errorf("%s: %d, want %d: %s", c.name, status, c.want, body)
		}
		if status >= 400 && status != 426 {
			var p struct {
				Type, Title, Detail string
				Status              int
			}
			if err := json.Unmarshal([]byte(body), &p); err != nil || p.Status != status || p.Detail == "" || header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s: no problem document: %v %s", c.name, header, body)
			}
		}
		if asks := header.Values("WWW-Authenticate"); (status == 401) != (len(asks) == 2) {
			t.Errorf("%s: WWW-Authenticate %v", c.name, asks)
		}
	}
	// An anonymous reader gets what is public alone.
	anonymous := l.client(f, "everything")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at(f, "http", "events", "everything", ""), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	anonymous.events, anonymous.body = true, bufio.NewReader(resp.Body)
	l.telemetry("mag-2", 1, 10)
	l.telemetry("cam-1", 1, 10)
	l.telemetry("mag-1", 1, 10)
	anonymous.until("what is public", func() bool { return len(anonymous.datagrams) > 0 })
	if anonymous.datagrams[0] != 2 {
		t.Errorf("an anonymous reader got %v", anonymous.datagrams)
	}
	// There is space for one.
	one := l.client(f, "one")
	one.events = true
	one.connect()
	status, _, header := get(t, at(f, "http", "events", "one", ""), bearer("one"))
	if status != http.StatusTooManyRequests || header.Get("Retry-After") == "" {
		t.Errorf("a second connection: %d, Retry-After %q", status, header.Get("Retry-After"))
	}
	one.stop()
	testenv.Await(t, "there is space again", func() bool {
		status, _, _ := get(t, at(f, "http", "events", "one", ""), bearer("one"))
		return status == http.StatusOK
	})
}

func epoch(t *testing.T, l *lab) string {
	t.Helper()
	s, err := l.js.Stream(t.Context(), wire.ObservationStream(site))
	if err != nil {
		t.Fatal(err)
	}
	return wire.StreamEpoch(s.CachedInfo().Created)
}

// Data under embargo reaches only the readers and consumers that are named.
func TestEmbargo(t *testing.T) {
	t.Parallel()
	l := newLab(t, consumer("named", wire.DeliveryWebSocket), consumer("other", wire.DeliveryWebSocket))
	l.registry.Instruments[0].Access = &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic, EmbargoMillis: time.Hour.Milliseconds(), Readers: []string{"consumer:named"}}
	l.declare()
	f := l.start()
	named, other := l.client(f, "named"), l.client(f, "other")
	named.connect()
	other.connect()
	l.telemetry("mag-1", 1, 10)
	l.telemetry("mag-2", 1, 10)
	named.expect(0, 2)
	other.expect(1, 2)
}

// A connection ends when its consumer goes, its token changes, or its flow does;
// where less may be read, less comes.
func TestChangesReachConnections(t *testing.T) {
	t.Parallel()
	l := newLab(t, consumer("gone", wire.DeliveryWebSocket), consumer("revoked", wire.DeliveryWebSocket), consumer("flow", wire.DeliveryWebSocket),
		consumer("access", wire.DeliveryWebSocket), consumer("stays", wire.DeliveryWebSocket), consumer("stream", wire.DeliveryServerSentEvents))
	f := l.start()
	clients := map[string]*client{}
	for _, e := range l.registry.Consumers {
		c := l.client(f, e.Consumer)
		c.events = e.Delivery == wire.DeliveryServerSentEvents
		c.connect()
		clients[e.Consumer] = c
	}
	l.telemetry("mag-1", 1, 10)
	for _, c := range clients {
		c.expect(0, 1)
	}
	l.registry.Consumers = l.registry.Consumers[1:5] // without "gone" and "stream"
	l.registry.Consumers[0].Tokens = []wire.TokenHash{hash("another")}
	l.registry.Consumers[1].Flow.Mode = wire.FlowLatest
	l.registry.Instruments[0].Access = &wire.AccessEntry{Live: wire.AccessRestricted, Archive: wire.AccessPublic, Readers: []string{"consumer:stays"}}
	l.registry.Instruments[0].Revision = 2
	l.declare()
	for name, want := range map[string]websocket.StatusCode{
		"gone": websocket.StatusPolicyViolation, "revoked": websocket.StatusPolicyViolation, "flow": websocket.StatusServiceRestart,
	} {
		var closed websocket.CloseError
		if err := clients[name].end(); !errors.As(err, &closed) || closed.Code != want {
			t.Errorf("%s: %v, want code %d", name, err, want)
		}
	}
	if err := clients["stream"].end(); !errors.Is(err, io.EOF) {
		t.Errorf("stream: %v", err)
	}
	l.telemetry("mag-1", 1, 10)
	l.telemetry("mag-2", 1, 10)
	clients["stays"].expect(0, 3)
	access := clients["access"]
	access.until("what it may have", func() bool { return len(access.datagrams) == 2 })
	if access.datagrams[1] != 2 {
		t.Errorf("it got %v", access.datagrams)
	}
}

// A FeedConsumer that is deleted and recreated with the same token is another one, and so is a
// Feed: connections to the first end.
func TestMadeAnewUnderItsName(t *testing.T) {
	t.Parallel()
	l := newLab(t, consumer("anew", wire.DeliveryWebSocket), consumer("same", wire.DeliveryWebSocket))
	f := l.start()
	anew, stays := l.client(f, "anew"), l.client(f, "same")
	anew.connect()
	stays.connect()
	l.telemetry("mag-1", 1, 10)
	anew.expect(0, 1)
	stays.expect(0, 1)
	ends := func(c *client) {
		t.Helper()
		var closed websocket.CloseError
		if err := c.end(); !errors.As(err, &closed) || closed.Code != websocket.StatusPolicyViolation {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	l.registry.Consumers[0].UID = "another"
	l.declare()
	ends(anew)
	l.telemetry("mag-1", 1, 10)
	stays.expect(0, 2)
	l.registry.Feeds[0].UID = "another"
	l.declare()
	ends(stays)
}

// A ticket opens once, at any replica, for the consumer that it was asked for.
func TestTickets(t *testing.T) {
	t.Parallel()
	l := newLab(t, consumer("c", wire.DeliveryWebSocket), consumer("d", wire.DeliveryWebSocket))
	servers := []*testenv.FeedServer{l.start(), l.start("--pod", "feed-server-1")}
	ask := func(consumer string, header http.Header) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at(servers[0], "http", "tickets", consumer, ""), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = header
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var answer struct {
			Ticket    string
			ExpiresAt time.Time
		}
		_ = json.NewDecoder(resp.Body).Decode(&answer)
		return resp.StatusCode, answer.Ticket
	}
	if status, ticket := ask("c", http.Header{}); status != http.StatusUnauthorized || ticket != "" {
		t.Errorf("an anonymous reader gets %d %s", status, ticket)
	}
	dial := func(f *testenv.FeedServer, consumer, ticket, origin string) error {
		conn, _, err := websocket.Dial(t.Context(), at(f, "ws", "ws", consumer, "")+"&ticket="+url.QueryEscape(ticket), &websocket.DialOptions{
			Subprotocols: []string{wire.SubprotocolJSON}, HTTPHeader: http.Header{"Origin": {origin}},
		})
		if err == nil {
			t.Cleanup(func() { _ = conn.CloseNow() })
		}
		return err
	}
	status, ticket := ask("c", bearer("c"))
	if status != http.StatusCreated || ticket == "" {
		t.Fatalf("%d %q", status, ticket)
	}
	if err := dial(servers[1], "d", ticket, "https://dashboards.example"); err == nil {
		t.Error("a ticket opens another consumer")
	}
	if err := dial(servers[1], "c", ticket, "https://dashboards.example"); err != nil {
		t.Error(err)
	}
	for _, f := range servers {
		if err := dial(f, "c", ticket, "https://dashboards.example"); err == nil {
			t.Error("a ticket opens twice")
		}
	}
	// Credentials that a browser sends by itself give pages of other sites no access.
	header := http.Header{"Origin": {"https://elsewhere.example"}, "Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte(":c-token"))}}
	if conn, resp, err := websocket.Dial(t.Context(), at(servers[0], "ws", "ws", "c", ""), &websocket.DialOptions{HTTPHeader: header}); err == nil {
		_ = conn.CloseNow()
		t.Error("another site's page is let in")
	} else if resp == nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("another site's page: %v", err)
	}
}

// Clients that send what they should not are shown out, and others stay.
func TestGarbage(t *testing.T) {
	t.Parallel()
	l := newLab(t, consumer("good", wire.DeliveryWebSocket), consumer("bad", wire.DeliveryWebSocket))
	f := l.start()
	good := l.client(f, "good")
	good.connect()
	talker := l.client(f, "bad")
	talker.connect()
	if err := talker.conn.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	var closed websocket.CloseError
	if err := talker.end(); !errors.As(err, &closed) || closed.Code != websocket.StatusPolicyViolation {
		t.Errorf("who talks: %v", err)
	}
	handshake := "GET /feeds/all/ws?consumer=bad HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer bad-token\r\n\r\n"
	for name, bytes := range map[string]string{
		"no HTTP":          "\x00\x01\x02 nonsense\r\n\r\n",
		"endless header":   "GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 1<<20),
		"garbage frames":   handshake + strings.Repeat("\xff\x00garbage", 1000),
		"an endless frame": handshake + "\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff" + strings.Repeat("x", 100_000),
	} {
		conn, err := net.Dial("tcp", f.Address())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(conn, bytes)
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: still open", name)
		}
		_ = conn.Close()
	}
	l.telemetry("mag-1", 1, 10)
	good.expect(0, 1)
	testenv.Await(t, "the bad are gone", func() bool { return metric(t, f, "substorm_feed_connections", `"bad"`) == 0 })
}
