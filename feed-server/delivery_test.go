// SPDX-License-Identifier: Apache-2.0

package feedserver_test

import (
	"fmt"
	"testing"

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
	// Who comes without a token begins at the newest.
	fresh := l.client(f, "sockets")
	fresh.connect()
	l.telemetry("mag-1", 3, 20)
	fresh.expect(202, 205)
}

// A token inside a message goes on there, and one that was given means what lies
// behind it.
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
	if token.Telemetry.Sequence != 2 || token.Telemetry.Index != 9 {
		t.Fatalf("token %s", first.token)
	}
	for _, at := range []struct {
		sequence uint64
		index    uint32
		first    int
	}{{1, 0, 1}, {1, 8, 9}, {1, 9, 10}, {2, 3, 14}, {0, 4294967295, 0}} {
		c := l.client(f, "c")
		c.token = wire.FeedToken{Telemetry: wire.ResumeToken{Epoch: token.Telemetry.Epoch, Sequence: at.sequence, Index: at.index}}.String()
		c.connect()
		c.expect(at.first, 20)
		c.stop()
	}
}
