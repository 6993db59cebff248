// SPDX-License-Identifier: Apache-2.0

package feedserver_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/nats-io/nats.go"

	"github.com/substorm/substorm/internal/wire"
)

// A base stream also holds messages of leaves, whose instruments may have the names of the hub's. A
// Feed carries them only if it declares so; anonymous readers get none of them, even if they may
// read the hub's instrument of that name.
func TestLeaves(t *testing.T) {
	t.Parallel()
	l := newLab(t, consumer("all", wire.DeliveryWebSocket), consumer("both", wire.DeliveryWebSocket, func(c *wire.ConsumerEntry) { c.Feed = "both" }))
	s, err := l.js.Stream(t.Context(), wire.NoticeStream(site))
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.Subjects = append(cfg.Subjects, wire.NoticeSubjects("north"), wire.NoticeSubjects("iceland")) // as if it sourced them
	if _, err := l.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for i := range l.registry.Instruments {
		l.registry.Instruments[i].Access = &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}
	}
	both := l.registry.Feeds[0]
	both.Feed, both.UID, both.Instruments = "both", "both", []string{"cam-1", wire.LeafInstruments("north")}
	l.registry.Feeds = append(l.registry.Feeds, both)
	l.declare()
	f := l.start()

	dial := func(feed string, header http.Header) *client {
		t.Helper()
		c := l.client(f, feed)
		conn, _, err := websocket.Dial(t.Context(), "ws://"+f.Address()+"/feeds/"+feed+"/ws?consumer="+c.name,
			&websocket.DialOptions{Subprotocols: []string{wire.SubprotocolBinary}, HTTPHeader: header})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.CloseNow() })
		c.conn = conn
		return c
	}
	clients := []*client{dial("all", bearer("all")), dial("both", bearer("both")), dial("both", nil)}
	for n := range 10 {
		for _, from := range []string{site, "north", "iceland"} {
			notice := wire.Notice{Site: from, Instrument: "cam-1", Record: wire.Record{ID: "o/", Key: "o/", Name: fmt.Sprint(from, n), State: wire.StateCurrent,
				ReceivedAt: time.Now(), TimeSource: wire.TimeSourceReceived}}
			m := nats.NewMsg(wire.NoticeSubject(from, "cam-1"))
			if m.Data, err = wire.Encode(notice); err != nil {
				t.Fatal(err)
			}
			l.publish(m)
		}
	}
	l.notice("cam-1", "last")
	for i, want := range []int{10, 20, 10} {
		c := clients[i]
		c.until("the last notice", func() bool { return len(c.notices) > 0 && c.notices[len(c.notices)-1] == "last" })
		if len(c.notices) != want+1 {
			t.Errorf("client %d got %d notices and not %d: %v", i, len(c.notices), want+1, c.notices)
		}
	}
}
