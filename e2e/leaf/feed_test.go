// SPDX-License-Identifier: Apache-2.0

package leaf

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// A Feed at the hub that carries a leaf gives its consumers what the leaf sent,
// from the beginning, over a link that was cut meanwhile; one that does not carry
// it gives none of it, although both have a camera of the same name.
func TestFeedOfALeaf(t *testing.T) {
	t.Parallel()
	l := newLab(t, true, nil)
	testenv.AddLeaf(t, l.hub, hubCode, leafCode)
	feed := func(name string, instruments ...string) (wire.FeedEntry, wire.ConsumerEntry) {
		return wire.FeedEntry{UID: name, Feed: name, Notices: wire.NoticeStream(hubCode), Instruments: instruments},
			wire.ConsumerEntry{UID: name, Consumer: name, Feed: name, Flow: wire.FlowEntry{Mode: wire.FlowAll},
				Delivery: wire.DeliveryWebSocket, Tokens: []wire.TokenHash{wire.HashToken([]byte("salt"), "token-of-"+name)}}
	}
	both, readsBoth := feed("both", camera, wire.LeafInstruments(leafCode))
	own, readsOwn := feed("own", camera)
	l.hub.Declare(t, hubCode, testenv.Registry{Revision: 1, Instruments: []wire.InstrumentEntry{{Instrument: camera}},
		Feeds: []wire.FeedEntry{both, own}, Consumers: []wire.ConsumerEntry{readsBoth, readsOwn}})
	server := testenv.StartFeedServer(t, testenv.FeedServerOptions{Site: hubCode, NATS: l.hub})
	before, after := l.follow(server, "both"), l.follow(server, "own")

	hub, leaf := l.hub.JetStream(t), l.leaf.JetStream(t)
	var all, hubs []string
	for n := range 20 {
		if n == 10 {
			l.linked()
			l.link.Cut()
		}
		all = append(all, announce(t, leaf, leafCode, n), announce(t, hub, hubCode, n))
		hubs = append(hubs, all[len(all)-1])
	}
	l.link.Mend()
	want(t, "both", all, before(len(all)))
	announce(t, hub, hubCode, 20)
	want(t, "own", append(hubs, hubCode+" 20"), after(len(hubs)+1))
}

// announce publishes the notice of a frame and returns its name.
func announce(t *testing.T, js jetstream.JetStream, site string, n int) string {
	t.Helper()
	name := fmt.Sprint(site, " ", n)
	data, err := wire.Encode(wire.Notice{Site: site, Instrument: camera, Record: wire.Record{ID: name, Key: "o/" + name, Name: name,
		State: wire.StateCurrent, ReceivedAt: time.Now(), TimeSource: wire.TimeSourceReceived}})
	if err != nil {
		t.Fatal(err)
	}
	m := nats.NewMsg(wire.NoticeSubject(site, camera))
	m.Data = data
	m.Header.Set(wire.HeaderMessageID, name)
	if _, err := js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	return name
}

// follow connects to a Feed as the consumer of its name; got returns the names of
// the next so many notices.
func (l *lab) follow(server *testenv.FeedServer, feed string) (got func(int) []string) {
	t := l.t
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), "ws://"+server.Address()+"/feeds/"+feed+"/ws?consumer="+feed, &websocket.DialOptions{
		Subprotocols: []string{wire.SubprotocolBinary}, HTTPHeader: http.Header{"Authorization": {"Bearer token-of-" + feed}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	conn.SetReadLimit(-1)
	return func(count int) []string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var names []string
		for len(names) < count {
			_, data, err := conn.Read(ctx)
			if err != nil {
				t.Fatalf("feed %s after %v: %v", feed, names, err)
			}
			frame, err := wire.DecodeFrame(data)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range frame.Records {
				n, err := wire.Decode[wire.Notice](r.Payload)
				if err != nil || r.Kind != wire.RecordNotice {
					t.Fatalf("a record of kind %v: %v", r.Kind, err)
				}
				names = append(names, n.Name)
			}
		}
		return names
	}
}

// want compares what came of each Site in order: between Sites there is none.
func want(t *testing.T, feed string, want, got []string) {
	t.Helper()
	of := func(all []string, site string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name[:3] != site[:3] })
	}
	for _, site := range []string{hubCode, leafCode} {
		if w, g := of(want, site), of(got, site); !slices.Equal(w, g) {
			t.Errorf("feed %s of %s: got %v, want %v", feed, site, g, w)
		}
	}
}
