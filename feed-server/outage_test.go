// SPDX-License-Identifier: Apache-2.0

package feedserver_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// follow reads on, over broken connections, at one server or another, until the
// client has so many datagrams.
func (c *client) follow(servers []*testenv.FeedServer, enough *atomic.Int64) error {
	missing := func() bool { return int64(len(c.datagrams)) < enough.Load() }
	for turn := 0; missing(); turn++ {
		c.server = servers[turn%len(servers)]
		if c.conn == nil && c.body == nil {
			if err := c.tryConnect(); err != nil {
				time.Sleep(100 * time.Millisecond) // a client's pause before it connects again
				if turn > 1800 {
					return fmt.Errorf("%s has %d of %d, and cannot connect: %w", c.name, len(c.datagrams), enough.Load(), err)
				}
				continue
			}
		}
		for missing() {
			if err := c.read(); err != nil {
				break
			}
		}
		if missing() {
			c.stop()
			c.conn, c.body = nil, nil
		}
	}
	return nil
}

// Clients of a feed server that is killed go on at another one: nothing is lost,
// and nothing comes twice. So it is with one that is stopped.
func TestAnotherReplica(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testenv.FeedServer){"killed": func(f *testenv.FeedServer) { f.Kill() }, "stopped": func(f *testenv.FeedServer) { f.Stop() }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, consumer("sockets", wire.DeliveryWebSocket), consumer("stream", wire.DeliveryServerSentEvents))
			servers := []*testenv.FeedServer{l.start("--drain-timeout", "5s"), l.start("--pod", "feed-server-1")}
			var enough atomic.Int64
			enough.Store(1 << 40)
			clients := []*client{l.client(servers[0], "sockets"), l.client(servers[0], "sockets"), l.client(servers[0], "stream")}
			clients[1].text, clients[2].events = true, true
			done := make(chan error, len(clients))
			for _, c := range clients {
				c.connect()
				go func() { done <- c.follow(servers, &enough) }()
			}
			ended := make(chan struct{})
			for n := 0; ; n++ {
				if n == 150 {
					go func() { end(servers[0]); close(ended) }()
				}
				l.telemetry("mag-1", 3, 2000)
				time.Sleep(2 * time.Millisecond) // data comes all the time, while the server ends
				select {
				case <-ended:
				default:
					continue
				}
				break
			}
			enough.Store(int64(l.next + 3*50)) // before the last of them come
			for range 50 {
				l.telemetry("mag-1", 3, 2000)
			}
			for range clients {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			for _, c := range clients {
				c.expect(0, l.next)
				if c.server != servers[1] {
					t.Errorf("%s is still with the first server", c.name)
				}
			}
		})
	}
}

// A client that was given nothing yet loses its feed server: what comes before it
// is there again is not lost.
func TestBrokenBeforeTheFirst(t *testing.T) {
	t.Parallel()
	latest := func(c *wire.ConsumerEntry) { c.Flow.Mode = wire.FlowLatest }
	l := newLab(t, consumer("sockets", wire.DeliveryWebSocket), consumer("stream", wire.DeliveryServerSentEvents), consumer("latest", wire.DeliveryWebSocket, latest))
	f := l.start()
	clients := []*client{l.client(f, "sockets"), l.client(f, "sockets"), l.client(f, "stream"), l.client(f, "latest")}
	clients[1].text, clients[2].events = true, true
	for _, c := range clients {
		c.connect()
		c.until("its place", func() bool { return c.token != "" })
	}
	f.Kill()
	l.telemetry("mag-1", 1, 10) // while they are away
	other := l.start("--pod", "feed-server-1")
	for _, c := range clients {
		c.server = other
		c.connect()
		c.expect(0, 1)
	}
}

// While NATS is killed and started under load, connections stay, and miss nothing.
func TestNATSRestarts(t *testing.T) {
	t.Parallel()
	l := newLab(t, consumer("sockets", wire.DeliveryWebSocket), consumer("stream", wire.DeliveryServerSentEvents))
	f := l.start("--ring-size", "1048576")
	clients := []*client{l.client(f, "sockets"), l.client(f, "stream")}
	clients[1].events = true
	for _, c := range clients {
		c.connect()
	}
	const messages = 400
	for n := range messages {
		if n == 100 || n == 250 {
			l.nats.Kill()
			l.nats.Start()
		}
		l.telemetryOnce("mag-1", 10_000)
	}
	for _, c := range clients {
		c.expect(0, messages)
	}
}

// telemetryOnce publishes a message once, though NATS may be away meanwhile.
func (l *lab) telemetryOnce(instrument string, size int) {
	l.id = fmt.Sprint("id-", l.next)
	l.telemetry(instrument, 1, size)
	l.id = ""
}

// A stream that was deleted and recreated is recognized: clients get a gap record, also those with
// an old token, and get all that the new one holds.
func TestStreamMadeAnew(t *testing.T) {
	t.Parallel()
	l := newLab(t, consumer("sockets", wire.DeliveryWebSocket), consumer("stream", wire.DeliveryServerSentEvents), consumer("later", wire.DeliveryWebSocket))
	f := l.start()
	clients := []*client{l.client(f, "sockets"), l.client(f, "stream"), l.client(f, "later")}
	clients[1].events = true
	for range 10 {
		l.telemetry("mag-1", 1, 100)
	}
	for _, c := range clients {
		c.connect()
	}
	l.telemetry("mag-1", 1, 100)
	for _, c := range clients {
		c.expect(10, 11)
	}
	clients[2].stop()
	stream := wire.ObservationStream(site)
	info, err := l.js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.js.DeleteStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	testenv.CreateSite(t, l.js, site)
	l.telemetry("mag-1", 1, 100)
	clients[2].connect()
	l.notice("cam-1", "x")
	for _, c := range clients {
		c.until("the gap, what the new stream holds, and the other stream", func() bool { return len(c.gaps) == 1 && len(c.datagrams) == 2 && len(c.notices) == 1 })
		g := c.gaps[0]
		if g.Reason != wire.GapStreamRecreated || g.Stream != stream || g.From != (wire.ResumeToken{Epoch: wire.StreamEpoch(info.CachedInfo().Created), Sequence: 12}).String() {
			t.Errorf("%s: gap %+v", c.name, g)
		}
	}
}

// Messages that left the stream before a client came again are a gap, and counted.
func TestRetention(t *testing.T) {
	t.Parallel()
	l := newLab(t, consumer("c", wire.DeliveryWebSocket))
	f := l.start("--ring-size", "1048576")
	c := l.client(f, "c")
	c.connect()
	l.telemetry("mag-1", 1, 100)
	c.expect(0, 1)
	c.stop()
	for range 30 {
		l.telemetry("mag-1", 1, 100_000)
	}
	stream, err := l.js.Stream(t.Context(), wire.ObservationStream(site))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(11)); err != nil {
		t.Fatal(err)
	}
	c.connect()
	c.until("what is left", func() bool { return len(c.datagrams) == 22 })
	if len(c.gaps) != 1 || c.gaps[0].Reason != wire.GapRetention || c.gaps[0].Count != 9 || c.datagrams[1] != 10 {
		t.Errorf("gaps %+v, then %d", c.gaps, c.datagrams[1])
	}
	testenv.Await(t, "the state is Overrun", func() bool { return metric(t, f, "substorm_feed_consumer_state", `state="Overrun"`) == 1 })
	kv, err := l.js.KeyValue(t.Context(), wire.StatusBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, "the report says so", func() bool {
		e, err := kv.Get(t.Context(), wire.ConsumerStatusKey("c", "feed-server-0"))
		if err != nil {
			return false
		}
		s, err := wire.Decode[wire.ConsumerStatus](e.Value())
		return err == nil && s.State == wire.StateOverrun && s.Gaps == 1 && s.Connections == 1 && s.LastGap != nil && s.Dropped[string(wire.GapRetention)] == 9 && s.Messages == 22 && s.Token == c.token
	})
	e, err := kv.Get(t.Context(), wire.FeedServerStatusKey("feed-server-0"))
	if err != nil {
		t.Fatal(err)
	}
	if s, err := wire.Decode[wire.FeedServerStatus](e.Value()); err != nil || s.Revision != 1 || s.Connections != 1 || len(s.Problems) > 0 || s.Draining {
		t.Errorf("%+v, %v", s, err)
	}
}

// A server that stops tells its clients to go to another.
func TestDrain(t *testing.T) {
	t.Parallel()
	l := newLab(t, consumer("c", wire.DeliveryWebSocket))
	f := l.start("--drain-timeout", "10s")
	c := l.client(f, "c")
	c.connect()
	var stopped atomic.Bool
	go func() { f.Stop(); stopped.Store(true) }()
	err := c.end()
	var closed websocket.CloseError
	if !errors.As(err, &closed) || closed.Code != websocket.StatusServiceRestart {
		t.Errorf("closed with %v", err)
	}
	testenv.Await(t, "it stops", stopped.Load)
}
