// SPDX-License-Identifier: Apache-2.0

package feedserver_test

import (
	"slices"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// backfill publishes the notice of an object that came a day after it was observed.
func (l *lab) backfill(instrument, name string) {
	l.t.Helper()
	now := time.Now().UTC()
	observed := now.AddDate(0, 0, -1)
	m, err := stream.NoticeMessage(wire.Notice{Site: site, Instrument: instrument, Record: wire.Record{
		ID: "o/" + name, Key: "o/" + name, Name: name, State: wire.StateCurrent, ReceivedAt: now,
		ObservedFrom: &observed, ObservedTo: &observed, TimeSource: wire.TimeSourcePayload, Backfill: true,
	}}, "gateway-0")
	if err != nil {
		l.t.Fatal(err)
	}
	l.publish(m)
}

// Notices of backfill are given to consumers of a Feed that includes them, over each
// delivery and in each mode.
func TestBackfill(t *testing.T) {
	t.Parallel()
	for name, include := range map[string]bool{"Exclude": false, "Include": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, consumer("sockets", wire.DeliveryWebSocket), consumer("stream", wire.DeliveryServerSentEvents),
				consumer("latest", wire.DeliveryWebSocket, func(c *wire.ConsumerEntry) { c.Flow.Mode = wire.FlowLatest }))
			l.registry.Feeds[0].Backfill = include
			l.declare()
			f := l.start()
			clients := []*client{l.client(f, "sockets"), l.client(f, "sockets"), l.client(f, "stream"), l.client(f, "latest")}
			clients[1].text, clients[2].events = true, true
			for _, c := range clients {
				c.connect()
			}
			want := []string{"end"}
			if include {
				want = []string{"late", "end"}
			}
			l.backfill("cam-1", "late")
			l.notice("mag-1", "end")
			for i, c := range clients {
				c.until("the last notice", func() bool { return slices.Contains(c.notices, "end") })
				if !slices.Equal(c.notices, want) {
					t.Errorf("client %d was given %q, want %q", i, c.notices, want)
				}
			}
		})
	}
}
