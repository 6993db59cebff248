// SPDX-License-Identifier: Apache-2.0

package feedserver_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// Every delivery gives everything once and in order, also to who goes and comes
// again with a token.
func TestDeliveries(t *testing.T) {
	t.Parallel()
	l := newLab(t, consumer("sockets", wire.DeliveryWebSocket), consumer("stream", wire.DeliveryServerSentEvents))
	f := l.start()
	clients := []*client{l.client(f, "sockets"), l.client(f, "sockets"), l.client(f, "stream")}
	clients[1].text, clients[2].events = true, true
	for _, c := range clients {
		c.connect()
	}
	send := func(from, to int) {
		for n := from; n < to; n++ {
			l.telemetry("mag-1", 5, 20)
			l.notice("cam-1", fmt.Sprint(n))
		}
		l.telemetry("mag-2", 1, 100_000) // larger than what is gathered
	}
	send(0, 20)
	for _, c := range clients {
		c.expect(0, 101)
		c.until("notices", func() bool { return len(c.notices) == 20 })
		c.stop()
	}
	send(20, 40)
	for _, c := range clients {
		c.connect()
		c.expect(0, 202)
		c.until("notices", func() bool { return len(c.notices) == 40 })
		for i, name := range c.notices {
			if name != fmt.Sprint(i) {
				t.Fatalf("notice %d is of %s", i, name)
			}
		}
	}
	// A client that comes without a token begins at the newest message.
	fresh := l.client(f, "sockets")
	fresh.connect()
	l.telemetry("mag-1", 3, 20)
	fresh.expect(202, 205)
}

// A token inside a message resumes there, and a token of a whole message resumes behind it.
func TestResumeInside(t *testing.T) {
	t.Parallel()
	l := newLab(t, consumer("c", wire.DeliveryWebSocket))
	f := l.start()
	first := l.client(f, "c")
	first.connect()
	l.telemetry("mag-1", 10, 20)
	l.telemetry("mag-1", 10, 20)
	first.expect(0, 20)
	token, err := wire.ParseFeedToken(first.token)
	if err != nil {
		t.Fatal(err)
	}
	if token.Telemetry.Sequence != 2 || token.Telemetry.Index != math.MaxUint32 {
		t.Fatalf("token %s", first.token)
	}
	for _, at := range []struct {
		sequence uint64
		index    uint32
		first    int
	}{{1, 0, 1}, {1, 8, 9}, {1, 9, 10}, {1, math.MaxUint32, 10}, {2, 3, 14}, {0, math.MaxUint32, 0}} {
		c := l.client(f, "c")
		c.token = wire.FeedToken{Telemetry: wire.ResumeToken{Epoch: token.Telemetry.Epoch, Sequence: at.sequence, Index: at.index}}.String()
		c.connect()
		c.expect(at.first, 20)
		c.stop()
	}
}

// A Feed with a stream of its own has one place, and the order of that stream.
func TestOwnStream(t *testing.T) {
	t.Parallel()
	l := newLab(t, consumer("c", wire.DeliveryWebSocket), consumer("notices", wire.DeliveryWebSocket, func(c *wire.ConsumerEntry) { c.NoTelemetry = true }))
	own := wire.FeedStream(site, "all")
	_, err := l.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: own, AllowDirect: true, Sources: []*jetstream.StreamSource{
		{Name: wire.ObservationStream(site)}, {Name: wire.NoticeStream(site)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	l.registry.Feeds[0].Notices, l.registry.Feeds[0].Telemetry = own, own
	l.declare()
	f := l.start()
	c, notices := l.client(f, "c"), l.client(f, "notices")
	c.connect()
	notices.connect()
	for n := range 20 {
		l.telemetry("mag-1", 2, 100)
		l.notice("cam-1", fmt.Sprint(n))
		if n == 10 {
			c.until("some", func() bool { return len(c.datagrams) > 5 })
			if token, err := wire.ParseFeedToken(c.token); err != nil || token.Notices.Epoch != "" || token.Telemetry.Epoch == "" {
				t.Errorf("token %s, %v", c.token, err)
			}
			c.stop()
			c.connect()
		}
	}
	c.expect(0, 40)
	c.until("notices", func() bool { return len(c.notices) == 20 })
	notices.until("notices", func() bool { return len(notices.notices) == 20 })
	if len(notices.datagrams) > 0 {
		t.Errorf("who wants notices got %v", notices.datagrams)
	}
}

// A client that gets no messages gets its place from time to time: messages that were skipped
// meanwhile may leave the stream, and are no gap.
func TestPlaceIsTold(t *testing.T) {
	t.Parallel()
	only := func(c *wire.ConsumerEntry) { c.Instruments = []string{"cam-1"} }
	l := newLab(t, consumer("sockets", wire.DeliveryWebSocket, only), consumer("stream", wire.DeliveryServerSentEvents, only),
		consumer("latest", wire.DeliveryWebSocket, only, func(c *wire.ConsumerEntry) { c.Flow.Mode = wire.FlowLatest }))
	f := l.start()
	clients := []*client{l.client(f, "sockets"), l.client(f, "sockets"), l.client(f, "stream"), l.client(f, "latest")}
	clients[1].text, clients[2].events = true, true
	for _, c := range clients {
		c.connect()
	}
	for range 7 {
		l.telemetry("mag-1", 1, 10)
	}
	for _, c := range clients {
		c.until("its place", func() bool {
			place, err := wire.ParseFeedToken(c.token)
			return err == nil && place.Telemetry.Sequence == 7 && place.Notices.Epoch != ""
		})
		c.stop()
	}
	stream, err := l.js.Stream(t.Context(), wire.ObservationStream(site))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.telemetry("cam-1", 1, 10)
	for _, c := range clients {
		c.connect()
		c.expect(7, 8)
	}
}
