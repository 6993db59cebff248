// SPDX-License-Identifier: Apache-2.0

package hapi_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/feed-server/hapi"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/pcapng"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const site = "thule"

// start of the tests' data; now is when they ask for it.
var (
	start = time.Date(2026, 11, 20, 22, 0, 0, 0, time.UTC)
	now   = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

func ptr[T any](v T) *T { return &v }

// lab is a bucket, the records of its objects, and a server.
type lab struct {
	store       objectstore.Store
	records     map[string][]wire.Record
	generations map[string][]wire.Description
	instruments map[string]wire.InstrumentEntry
	url         string
	opened      atomic.Int64
}

func newLab(t testing.TB, entries ...wire.InstrumentEntry) *lab {
	t.Helper()
	l := &lab{store: testenv.SharedBucket(t), records: map[string][]wire.Record{},
		instruments: map[string]wire.InstrumentEntry{}}
	for _, e := range entries {
		l.instruments[e.Instrument] = e
	}
	l.serve(t, nil)
	return l
}

// ways are how a lab's data is served.
type ways struct {
	hapi.Config
	check endpoint.AccessCheckConfig
}

// serve serves the lab's data, in another way than before.
func (l *lab) serve(t testing.TB, change func(*ways)) {
	t.Helper()
	server := l.server(t, change)
	server.Start()
	l.url = server.URL + hapi.Path
}

// server returns a server of the lab's data, which is to be started.
func (l *lab) server(t testing.TB, change func(*ways)) *httptest.Server {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	readers := map[string]wire.ReaderEntry{}
	for _, name := range []string{"uni", "other"} {
		readers[name] = wire.ReaderEntry{Reader: name, Tokens: []wire.TokenHash{wire.HashToken([]byte("salt"), name+"-token")}}
	}
	rules := &registry.Snapshot{Revision: 1, Instruments: l.instruments, Readers: readers}
	often := endpoint.Rate{PerSecond: 1e6, Burst: 1e6}
	w := ways{
		Config: hapi.Config{Site: site, Contact: "somebody@example.org", Archive: l, Now: func() time.Time { return now },
			Generations: func(instrument string) []wire.Description { return l.generations[instrument] },
			Log:         log, Metrics: prometheus.NewRegistry()},
		check: endpoint.AccessCheckConfig{Limits: endpoint.Limits{Person: often, Robot: often}, Logger: log, Metrics: prometheus.NewRegistry(),
			Registry: func() *registry.Snapshot { return rules }},
	}
	if change != nil {
		change(&w)
	}
	w.AccessCheck = endpoint.NewAccessCheck(w.check)
	handler, err := hapi.New(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	endpoints := http.NewServeMux()
	for pattern, serve := range handler.Endpoints() {
		endpoints.HandleFunc(pattern, serve)
	}
	server := httptest.NewUnstartedServer(endpoints)
	t.Cleanup(server.Close)
	return server
}

func timesOf(r wire.Record) (from, to time.Time) {
	if r.ObservedFrom == nil {
		return r.ReceivedAt, r.ReceivedAt
	}
	return *r.ObservedFrom, *r.ObservedTo
}

func (l *lab) Span(_ context.Context, instrument string, _ bool) (from, to time.Time, ok bool, err error) {
	for _, r := range l.records[instrument] {
		a, b := timesOf(r)
		if !ok || a.Before(from) {
			from = a
		}
		if !ok || b.After(to) {
			to = b
		}
		ok = true
	}
	return from, to, ok, nil
}

func (l *lab) Observed(_ context.Context, instrument string, from, to time.Time) iter.Seq2[wire.Record, error] {
	return func(yield func(wire.Record, error) bool) {
		for _, r := range l.records[instrument] {
			if a, b := timesOf(r); !b.Before(from) && a.Before(to) && !yield(r, nil) {
				return
			}
		}
	}
}

func (l *lab) Tag(ctx context.Context, instrument string, from, to time.Time) (string, error) {
	sum := sha256.New()
	for r := range l.Observed(ctx, instrument, from, to) {
		fmt.Fprintln(sum, r.ID, r.State)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func (l *lab) Open(ctx context.Context, r wire.Record) (io.ReadCloser, error) {
	l.opened.Add(1)
	return objectpath.Open(ctx, l.store, r)
}

// object stores an object that was received at a time.
func (l *lab) object(t testing.TB, instrument, name string, receivedAt time.Time, payload []byte) *wire.Record {
	t.Helper()
	digest := wire.Digest(sha256.Sum256(payload))
	key := wire.RawKey(site, instrument, receivedAt, digest)
	r := wire.Record{ID: key, Key: key, Name: name, Size: int64(len(payload)), Digest: digest, State: wire.StateCurrent,
		ReceivedAt: receivedAt, TimeSource: wire.TimeSourceReceived}
	return l.put(t, instrument, r, payload)
}

func (l *lab) put(t testing.TB, instrument string, r wire.Record, payload []byte) *wire.Record {
	t.Helper()
	if err := l.store.Put(t.Context(), r.Key, bytes.NewReader(payload), int64(len(payload)), objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	l.records[instrument] = append(l.records[instrument], r)
	return &l.records[instrument][len(l.records[instrument])-1]
}

// datagram is a payload that was received at a time.
type datagram struct {
	at      time.Time
	payload string
}

// segment stores a segment of datagrams, identified by its first stream sequence.
func (l *lab) segment(t testing.TB, instrument, channel string, first uint64, datagrams ...datagram) *wire.Record {
	t.Helper()
	data, from, to := newSegment(t, datagrams...)
	return l.putSegment(t, instrument, channel, first, len(datagrams), data, from, to)
}

func (l *lab) putSegment(t testing.TB, instrument, channel string, first uint64, datagrams int, data []byte, from, to time.Time) *wire.Record {
	t.Helper()
	key := wire.SegmentKey(site, instrument, channel, wire.DayOf(to), "19aa", first, first+uint64(datagrams)-1)
	return l.put(t, instrument, wire.Record{ID: key, Key: key, Size: int64(len(data)), Digest: wire.Digest(sha256.Sum256(data)),
		MediaType: wire.MediaTypeSegment, State: wire.StateCurrent, ObservedFrom: &from, ObservedTo: &to, ReceivedAt: to,
		TimeSource: wire.TimeSourceReceived, Segment: &wire.SegmentRange{Channel: channel, Epoch: "19aa", First: first}}, data)
}

func newSegment(t testing.TB, datagrams ...datagram) (data []byte, from, to time.Time) {
	t.Helper()
	var out bytes.Buffer
	p, err := pcapng.NewPackets(&out, "a test")
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range datagrams {
		err := p.Write(wire.Datagram{ReceivedAt: d.at, Source: netip.MustParseAddrPort("192.0.2.7:4000"), DestinationPort: 30102, Payload: []byte(d.payload)})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 || d.at.Before(from) {
			from = d.at
		}
		if i == 0 || d.at.After(to) {
			to = d.at
		}
	}
	return out.Bytes(), from, to
}

// get asks, and returns the answer and its body. Query is as in URLs, or empty.
func (l *lab) get(t testing.TB, path, query string, headers ...string) (*http.Response, []byte) {
	t.Helper()
	target := l.url + path
	if query != "" {
		target += "?" + query
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, body
}

// between is a query for data.
func between(dataset string, from, to time.Time, more ...string) string {
	q := url.Values{"dataset": {dataset}, "start": {from.Format(time.RFC3339Nano)}, "stop": {to.Format(time.RFC3339Nano)}}
	for i := 0; i < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return q.Encode()
}

// public lets everybody in.
var public = &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}

// magnetometer sends lines of a time, three components and a mode.
func magnetometer() wire.InstrumentEntry {
	return wire.InstrumentEntry{Instrument: "mag", Access: public,
		About: &wire.AboutEntry{Type: "Magnetometer", Latitude: "69.66", Longitude: "18.94", AltitudeMeters: ptr(int32(85)), Contact: "Observatory <mag@example.org>"},
		Channels: []wire.ChannelEntry{{Name: "field", Description: "The field.", Datagrams: "raw", CadenceMillis: 1000, UnitsSchema: "udunits2",
			Payload: wire.PayloadEntry{Type: wire.PayloadCSV, Separator: ",", Comment: "#"},
			Time: wire.ChannelTimeEntry{Source: wire.TimePayload, Format: wire.TimeISO8601, Columns: []int{1},
				Precision: wire.PrecisionMilliseconds, Location: "begin", MaxDelayMillis: time.Hour.Milliseconds()},
			Parameters: []wire.ParameterEntry{
				{Name: "B", Units: "nT", Type: wire.ParameterDouble, Size: []int{3}, Fill: ptr("-1e31"), Column: 2},
				{Name: "n", Type: wire.ParameterInteger, Fill: ptr("-1"), Column: 5},
				{Name: "mode", Description: "How it measures.", Type: wire.ParameterString, Length: 6, Fill: ptr("?"), Column: 6}}}}}
}

// sample is a datagram of it, received half a second after its time.
func sample(at time.Time, rest string) datagram {
	return datagram{at.Add(500 * time.Millisecond), at.Format("2006-01-02T15:04:05.000Z,") + rest}
}
