// SPDX-License-Identifier: Apache-2.0

// Package archivetest is an archive for the tests of the endpoints that stand beside it: a
// real store, a real stream, and the catalog of what is announced there.
package archivetest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/feed-server/archive"
	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// Site is the code of the Site.
	Site = "thule"
	// Bucket is the archive's bucket.
	Bucket = "archive"
	// Camera is an instrument of every lab, with a public archive.
	Camera = "allsky-1"
	// Reader is the reader of instruments that name it.
	Reader = "uni"
	// Token is the Reader's.
	Token = "uni-token"
)

// Public lets everybody read; Restricted the Reader alone.
var (
	Public     = &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}
	Restricted = &wire.AccessEntry{Live: wire.AccessRestricted, Archive: wire.AccessRestricted, Readers: []string{Reader}}
)

// Lab is one archive.
type Lab struct {
	testing.TB
	MinIO       *testenv.MinIOServer
	NATS        *testenv.NATSServer
	Store       objectstore.Store
	JetStream   jetstream.JetStream
	Catalog     *catalog.Catalog
	AccessCheck *endpoint.AccessCheck
	Archive     *archive.Archive
	Metrics     *prometheus.Registry
	Logger      *slog.Logger
	// URL is where the endpoints are, once they are open.
	URL string

	snapshot atomic.Pointer[registry.Snapshot]
	mu       sync.Mutex
	asked    []string
}

// Asked returns what the endpoints were asked since it was last called: "GET /path?query".
func (l *Lab) Asked() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	asked := l.asked
	l.asked = nil
	return asked
}

// New returns an archive without objects, of the Camera and further instruments.
func New(t testing.TB, more ...wire.InstrumentEntry) *Lab {
	t.Helper()
	return NewOn(t, testenv.NATS(t, testenv.NATSOptions{Unsynced: true}), more...)
}

// NewOn is New with a NATS server of the caller's.
func NewOn(t testing.TB, server *testenv.NATSServer, more ...wire.InstrumentEntry) *Lab {
	t.Helper()
	l := &Lab{
		TB: t, MinIO: testenv.MinIO(t, testenv.MinIOOptions{}), NATS: server,
		Metrics: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	}
	l.Store, l.JetStream = l.MinIO.Bucket(t, Bucket), l.NATS.JetStream(t)
	l.Declare(append([]wire.InstrumentEntry{{
		Instrument: Camera, UID: "camera", Generation: 1, MediaType: "image/jpeg", CadenceMillis: 10_000, Access: Public,
		Rights: &wire.RightsEntry{License: "CC-BY-4.0", DOI: "10.5555/thule", Citation: "Thule <2026>", Credit: "Image: Thule"},
	}}, more...)...)
	testenv.CreateSite(t, l.JetStream, Site)
	l.index()
	l.Catalog = catalog.New(catalog.Config{Site: Site, JetStream: l.JetStream, Store: l.Store, Log: l.Logger, Registerer: prometheus.NewRegistry()})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = l.Catalog.Run(ctx) // it is ctx's
	}()
	t.Cleanup(func() { stop(); <-ended })
	l.AccessCheck = endpoint.NewAccessCheck(endpoint.AccessCheckConfig{Registry: l.snapshot.Load, Logger: l.Logger, Metrics: l.Metrics})
	l.Archive = archive.New(archive.Config{
		Site: Site, Catalog: archive.Manifests{Catalog: l.Catalog}, Store: l.Store, AccessCheck: l.AccessCheck, Logger: l.Logger, Metrics: l.Metrics,
	})
	return l
}

// index says that nothing is listed yet.
func (l *Lab) index() {
	l.Helper()
	epoch, _, err := stream.Epoch(l.Context(), l.JetStream, wire.NoticeStream(Site))
	l.ok(err)
	listed, err := wire.Encode(wire.StreamCursor{Epoch: epoch, Next: 1})
	l.ok(err)
	kv, err := l.JetStream.CreateOrUpdateKeyValue(l.Context(), jetstream.KeyValueConfig{Bucket: wire.IndexBucket(Site), History: 1})
	l.ok(err)
	_, err = kv.Put(l.Context(), wire.IndexListedKey, listed)
	l.ok(err)
}

// Declare makes these the instruments.
func (l *Lab) Declare(all ...wire.InstrumentEntry) {
	s := &registry.Snapshot{
		Revision: 1, Instruments: map[string]wire.InstrumentEntry{}, Feeds: map[string]wire.FeedEntry{},
		Readers: map[string]wire.ReaderEntry{Reader: {Reader: Reader, Tokens: []wire.TokenHash{wire.HashToken([]byte("salt"), Token)}}},
	}
	for _, in := range all {
		s.Instruments[in.Instrument] = in
	}
	l.snapshot.Store(s)
}

// Snapshot is the registry as it is now. To change it store a copy by Set.
func (l *Lab) Snapshot() *registry.Snapshot { return l.snapshot.Load() }

// Set puts a registry into force.
func (l *Lab) Set(s *registry.Snapshot) { l.snapshot.Store(s) }

// Open opens the archive's endpoints and others.
func (l *Lab) Open(more ...map[string]http.HandlerFunc) {
	mux := http.NewServeMux()
	for _, endpoints := range append(more, l.Archive.Endpoints()) {
		for pattern, serve := range endpoints {
			mux.HandleFunc(pattern, serve)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		l.asked = append(l.asked, r.Method+" "+r.URL.RequestURI())
		l.mu.Unlock()
		mux.ServeHTTP(w, r)
	}))
	l.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	l.URL = server.URL
}

// Put stores an object and announces it under a path. Unless changed it was received
// now.
func (l *Lab) Put(instrument, path, body string, change ...func(*wire.Record)) wire.Record {
	l.Helper()
	r := wire.Record{
		Path: path, Size: int64(len(body)), Digest: sha256.Sum256([]byte(body)), State: wire.StateCurrent, ReceivedAt: time.Now().UTC(),
		TimeSource: wire.TimeSourceReceived, Key: wire.NamedKey(Site, instrument, path, 1), MediaType: "image/jpeg",
		Gateway: "gateway-0", Incarnation: "one", Source: "192.0.2.7:40000",
	}
	for _, c := range change {
		c(&r)
	}
	r.ID = cmp.Or(r.ID, r.Key)
	l.ok(l.Store.Put(l.Context(), r.Key, strings.NewReader(body), r.Size, objectstore.PutOptions{}))
	l.Announce(instrument, r)
	return r
}

// Announce publishes the notice of a record: of what was retracted the archivist's.
func (l *Lab) Announce(instrument string, r wire.Record) {
	l.Helper()
	writer := "gateway-0"
	if r.IsChange() {
		writer = wire.ArchivistWriter
	}
	m, err := stream.NoticeMessage(wire.Notice{Site: Site, Instrument: instrument, Record: r}, writer)
	l.ok(err)
	_, err = l.JetStream.PublishMsg(l.Context(), m)
	l.ok(err)
}

// Wait waits until the catalog knows an object.
func (l *Lab) Wait(r wire.Record) {
	l.Helper()
	l.Until(r.ID+" is known", func() bool {
		for name := range l.Snapshot().Instruments {
			d, err := l.Catalog.Day(l.Context(), name, wire.DayOf(r.ReceivedAt))
			l.ok(err)
			if slices.ContainsFunc(d.Records, func(is *wire.Record) bool { return is.ID == r.ID }) {
				return true
			}
		}
		return false
	})
}

// MarkDuplicate announces that an object is a duplicate of another one, and waits until the catalog knows that.
func (l *Lab) MarkDuplicate(instrument string, r, of wire.Record) {
	l.Helper()
	r.State, r.DuplicateOf = wire.StateDuplicate, of.ID
	l.Announce(instrument, r)
	l.Until(r.ID+" is a duplicate", func() bool {
		d, err := l.Catalog.Day(l.Context(), instrument, wire.DayOf(r.ReceivedAt))
		l.ok(err)
		return !slices.ContainsFunc(d.Records, func(got *wire.Record) bool { return got.ID == r.ID })
	})
}

// List writes manifests of all that the catalog knows, and has it know them.
func (l *Lab) List() {
	l.Helper()
	kv, err := l.JetStream.KeyValue(l.Context(), wire.IndexBucket(Site))
	l.ok(err)
	for name := range l.Snapshot().Instruments {
		days, err := l.Catalog.Days(l.Context(), name)
		l.ok(err)
		var entry wire.IndexEntry
		for _, of := range days {
			d, err := l.Catalog.Day(l.Context(), name, of.Day)
			l.ok(err)
			number := of.Parts.Count() + 1
			m := wire.Manifest{Header: wire.ManifestHeader{Site: Site, Instrument: name, Day: of.Day, Writer: "gateway-0", Incarnation: "one"}}
			sum := manifest.NewSummary(wire.RootDay{Day: of.Day, Parts: of.Parts})
			for _, r := range d.Records {
				m.Records = append(m.Records, *r)
				sum.Add(*r)
			}
			data, err := m.Encode()
			l.ok(err)
			key := wire.ManifestPartKey(Site, name, of.Day, number)
			sum.Part(number, key, int64(len(data)))
			l.ok(l.Store.Put(l.Context(), key, bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{CreateOnly: true}))
			entry.Open = append(entry.Open, sum.Day())
		}
		value, err := wire.Encode(entry)
		l.ok(err)
		_, err = kv.Put(l.Context(), name, value)
		l.ok(err)
	}
	epoch, state, err := stream.Epoch(l.Context(), l.JetStream, wire.NoticeStream(Site))
	l.ok(err)
	listed, err := wire.Encode(wire.StreamCursor{Epoch: epoch, Next: state.LastSeq + 1})
	l.ok(err)
	_, err = kv.Put(l.Context(), wire.IndexListedKey, listed)
	l.ok(err)
	l.Until("the manifests are known", func() bool {
		for name := range l.Snapshot().Instruments {
			days, err := l.Catalog.Days(l.Context(), name)
			l.ok(err)
			if slices.ContainsFunc(days, func(d wire.RootDay) bool { return d.Parts.Count() == 0 }) {
				return false
			}
		}
		return true
	})
}

// Answer is the response that a client sees. Err is the error of reading the body.
type Answer struct {
	Status int
	Header http.Header
	Body   string
	Err    error
}

var client = &http.Client{
	Transport:     &http.Transport{DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// Request opens an answer; headers are name and value in turn.
func (l *Lab) Request(method, path string, headers ...string) *http.Response {
	l.Helper()
	r, err := http.NewRequestWithContext(l.Context(), method, l.URL+path, nil)
	l.ok(err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	resp, err := client.Do(r)
	l.ok(err)
	return resp
}

// Get asks for all of an answer.
func (l *Lab) Get(path string, headers ...string) Answer {
	l.Helper()
	return l.read(http.MethodGet, path, headers)
}

// Head asks for its head.
func (l *Lab) Head(path string, headers ...string) Answer {
	l.Helper()
	return l.read(http.MethodHead, path, headers)
}

func (l *Lab) read(method, path string, headers []string) Answer {
	l.Helper()
	resp := l.Request(method, path, headers...)
	defer resp.Body.Close()
	var b bytes.Buffer
	_, err := io.Copy(&b, resp.Body)
	return Answer{resp.StatusCode, resp.Header, b.String(), err}
}

// Until asks until an answer is right.
func (l *Lab) Until(what string, right func() bool) {
	l.Helper()
	testenv.Await(l, what, right)
}

func (l *Lab) ok(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}
