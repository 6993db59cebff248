// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/feed-server/console"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// newLab returns an archive that is served together with its page.
func newLab(t *testing.T, more ...wire.InstrumentEntry) *archivetest.Lab {
	t.Helper()
	l := archivetest.New(t, more...)
	c := console.New(console.Config{Site: archivetest.Site, JetStream: l.JetStream, Catalog: l.Catalog, AccessCheck: l.AccessCheck, Logger: l.Logger})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	l.Open(c.Endpoints())
	return l
}

// magnetometer sends lines of two numbers by UDP, each second.
func magnetometer(name string, access *wire.AccessEntry) wire.InstrumentEntry {
	return wire.InstrumentEntry{
		Instrument: name, UID: name, Generation: 1, Station: "boulder", Gateway: archivetest.Pool, CadenceMillis: 1000, Access: access,
		About:     &wire.AboutEntry{Type: "Magnetometer"},
		Listeners: []wire.ListenerEntry{{Name: "telemetry", Protocol: wire.ProtocolUDP, Port: 30102, Channel: "raw"}},
		Channels: []wire.ChannelEntry{{
			Name: "seconds", Datagrams: "raw", Payload: wire.PayloadEntry{Type: wire.PayloadCSV, Separator: ","}, CadenceMillis: 1000,
			Time: wire.ChannelTimeEntry{Source: wire.TimeReceived, Precision: wire.PrecisionMilliseconds, Location: "begin"},
			Parameters: []wire.ParameterEntry{
				{Name: "note", Type: wire.ParameterString, Length: 4, Column: 3},
				{Name: "H", Type: wire.ParameterDouble, Units: "nT", Column: 1, Fill: new("99999.00")}, {Name: "Z", Type: wire.ParameterInteger, Units: "nT", Column: 2},
			},
		}},
	}
}

// sends is an instrument that sends objects.
func sends(name, station string, cadence time.Duration, access *wire.AccessEntry) wire.InstrumentEntry {
	return wire.InstrumentEntry{
		Instrument: name, UID: name, Generation: 1, Station: station, Gateway: archivetest.Pool, CadenceMillis: cadence.Milliseconds(), Access: access,
		Listeners: []wire.ListenerEntry{{Name: "frames", Protocol: wire.ProtocolHTTP, Port: 30101}},
	}
}

// update is the content of an event.
type update struct {
	At     int64
	Layout string
	Rows   []struct {
		Name, State string
		Received    int64
		Picture     *struct{ URL string }
	}
	SpaceWeather *spaceWeather
	Line         [][]*float64
}

type spaceWeather struct {
	Declared   bool
	Level, Why string
	Since      time.Time
	Values     []struct {
		Quantity string
		Value    float64
		Stale    bool
	}
}

// events reads updates.
type events struct {
	*archivetest.Lab
	*bufio.Reader
	lines []string
}

func follow(l *archivetest.Lab, query string, headers ...string) *events {
	l.Helper()
	resp := l.Request(http.MethodGet, "/console/events"+query, headers...)
	l.Cleanup(func() { resp.Body.Close() })
	over := time.AfterFunc(testenv.Patience, func() { resp.Body.Close() }) // what never comes fails
	l.Cleanup(func() { over.Stop() })
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		l.Fatalf("events%s: %d %v", query, resp.StatusCode, resp.Header)
	}
	return &events{Lab: l, Reader: bufio.NewReader(resp.Body)}
}

// until reads updates until one is right.
func (e *events) until(right func(update) bool) update {
	e.Helper()
	for {
		line, err := e.ReadString('\n')
		if err != nil {
			e.Fatalf("%v, after %q", err, e.lines)
		}
		data, is := strings.CutPrefix(line, "data: ")
		if !is {
			continue
		}
		e.lines = append(e.lines, data)
		var u update
		if err := json.Unmarshal([]byte(data), &u); err != nil {
			e.Fatal(err)
		}
		if right(u) {
			return u
		}
	}
}
