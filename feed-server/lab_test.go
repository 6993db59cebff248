// SPDX-License-Identifier: Apache-2.0

package feedserver_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const (
	site = "hub"
	// patience is how long a test waits for what must come.
	patience = testenv.Patience
)

// lab is a Site with NATS and its registry; feed servers are started by tests.
type lab struct {
	t   *testing.T
	bus testenv.Bus
	// nats is the bus if it is one server.
	nats     *testenv.NATSServer
	js       jetstream.JetStream
	registry testenv.Registry
	next     int // datagram
	// id of the next message, if it has one.
	id string
}

// newLab has a Feed "all" of mag-1, mag-2 and cam-1, and consumers as they are
// given, whose token is their name and "-token".
func newLab(t *testing.T, consumers ...wire.ConsumerEntry) *lab {
	t.Helper()
	server := testenv.NATS(t, testenv.NATSOptions{Unsynced: true})
	l := newLabOn(t, server, 1, consumers...)
	l.nats = server
	return l
}

// newLabOn is newLab on NATS as it is given, with so many replicas of each stream.
func newLabOn(t *testing.T, bus testenv.Bus, replicas int, consumers ...wire.ConsumerEntry) *lab {
	t.Helper()
	l := &lab{t: t, bus: bus, js: bus.JetStream(t)}
	testenv.CreateReplicatedSite(t, l.js, site, replicas)
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
	l.bus.Declare(l.t, site, l.registry)
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

func (l *lab) start(flags ...string) *testenv.FeedServer {
	l.t.Helper()
	return testenv.StartFeedServer(l.t, testenv.FeedServerOptions{Site: site, NATS: l.bus, Flags: append([]string{"--log-level", "debug"}, flags...)})
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
	data, err := wire.Encode(n)
	if err != nil {
		l.t.Fatal(err)
	}
	m := nats.NewMsg(wire.NoticeSubject(site, instrument))
	m.Data = data
	if l.id != "" {
		m.Header.Set(wire.HeaderMessageID, l.id)
	}
	l.publish(m)
}

func (l *lab) publish(m *nats.Msg) {
	l.t.Helper()
	var err error
	for range testenv.Attempts() { // NATS may be away meanwhile
		if _, err = l.js.PublishMsg(l.t.Context(), m); err == nil {
			return
		}
	}
	l.t.Fatal(err)
}

// get asks an endpoint, and returns the status and the body.
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
func metric(t *testing.T, f *testenv.FeedServer, name, part string) float64 {
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
