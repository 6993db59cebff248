// SPDX-License-Identifier: Apache-2.0

package archive_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/feed-server/archive"
	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// announced is an archive with a catalog of a Site's manifests.
type announced struct {
	*lab
	js jetstream.JetStream
}

func newAnnounced(t *testing.T, instruments ...wire.InstrumentEntry) *announced {
	t.Helper()
	ctx := t.Context()
	js := testenv.NATS(t, testenv.NATSOptions{Unsynced: true}).JetStream(t)
	testenv.CreateSite(t, js, site)
	kv, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: wire.IndexBucket(site), History: 1})
	if err != nil {
		t.Fatal(err)
	}
	epoch, _, err := stream.Epoch(ctx, js, wire.NoticeStream(site))
	if err != nil {
		t.Fatal(err)
	}
	listed, err := wire.Encode(wire.StreamCursor{Epoch: epoch, Next: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(ctx, wire.IndexListedKey, listed); err != nil {
		t.Fatal(err)
	}
	var all *catalog.Catalog
	l := newLab(t, func(c *config) {
		all = catalog.New(catalog.Config{Site: site, JetStream: js, Store: c.Store, Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
		c.Catalog = archive.Manifests{Catalog: all}
	}, instruments...)
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- all.Run(running) }()
	t.Cleanup(func() { stop(); <-ended })
	return &announced{l, js}
}

func (a *announced) announce(instrument string, r wire.Record) {
	a.t.Helper()
	writer := "gateway-0"
	if r.IsChange() {
		writer = wire.ArchivistWriter
	}
	m, err := stream.NoticeMessage(wire.Notice{Site: site, Instrument: instrument, Record: r}, writer)
	if err != nil {
		a.t.Fatal(err)
	}
	if _, err := a.js.PublishMsg(a.t.Context(), m); err != nil {
		a.t.Fatal(err)
	}
}

func (a *announced) put(instrument, path, body string, change ...func(*wire.Record)) wire.Record {
	a.t.Helper()
	r := a.lab.put(instrument, path, body, change...)
	a.announce(instrument, r)
	return r
}

// until asks until an answer has a status.
func (a *announced) until(status int, path string, headers ...string) answer {
	a.t.Helper()
	var got answer
	for range testenv.Attempts() {
		if got = a.get(path, headers...); got.status == status {
			return got
		}
	}
	a.t.Fatalf("%s: never %d, but %d: %s", path, status, got.status, got.body)
	return got
}

// Every endpoint serves announced objects, from the catalog of the manifests.
func TestManifests(t *testing.T) {
	t.Parallel()
	public := &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}
	embargo := &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic, EmbargoMillis: time.Hour.Milliseconds(), Readers: []string{"uni"}}
	l := newAnnounced(t, wire.InstrumentEntry{Instrument: "old", Station: "rank", Access: public, Aliases: []string{"{station}/{year2}{doy}/{hour}{minute}.jpg", "names/{name}"},
		Listeners: []wire.ListenerEntry{{Protocol: wire.ProtocolTCP, Port: 5000}}},
		wire.InstrumentEntry{Instrument: "later", Access: embargo})
	now := time.Now().UTC()
	l.put("old", "2015/03/17/first.jpg", "first", func(r *wire.Record) { r.Port = 5000 })
	l.put("old", "2015/03/17/second.jpg", "second", func(r *wire.Record) { r.Port, r.ReceivedAt = 5000, storm.Add(time.Second) })
	l.put("old", "", "named", func(r *wire.Record) { r.Name, r.Key = "day 1.mp4", wire.NamedKey(site, "old", "day 1.mp4", 1) })
	l.put("later", "old/a.jpg", "a")
	l.put("later", "new/b.jpg", "b", func(r *wire.Record) { r.ReceivedAt = now })
	last := l.put(camera, "deep/er/c.jpg", "c")
	l.until(200, "/archive/allsky-1/deep/er/c.jpg")

	for path, want := range map[string]string{
		"/archive/old/2015/03/17/first.jpg": "first", "/archive/old/n/day%201.mp4": "named", "/rank/15076/1200.jpg": "first", "/names/day%201.mp4": "named",
		"/legacy/192.0.2.7/5000/2015/03/17": "firstsecond", "/archive/allsky-1/deep/er/c.jpg?version=1": "c", "/archive/later/old/a.jpg": "a",
	} {
		if a := l.get(path); a.status != 200 || a.body != want {
			t.Errorf("%s: %d %q, want %q", path, a.status, a.body, want)
		}
	}
	for path, want := range map[string][]string{
		"/archive/": {"allsky-1/", "later/", "old/"}, "/archive/old/": {"2015/", "n/"}, "/archive/old/2015/03/17/": {"first.jpg", "second.jpg"},
		"/archive/later/": {"old/"}, "/archive/allsky-1/deep/": {"er/"},
	} {
		if got := l.list(path).names(); !slices.Equal(got, want) {
			t.Errorf("%s holds %v, want %v", path, got, want)
		}
	}
	for path, status := range map[string]int{
		"/archive/old/2015/03/17/none.jpg": 404, "/archive/old/none/": 404, "/archive/allsky-1/deep": 301, "/archive/later/new/b.jpg": 404, "/archive/later/new/": 404,
		"/names/none": 404, "/archive/allsky-1/deep/er/c.jpg?version=2": 404, "/sitemaps/allsky-1.xml": 200,
	} {
		l.get(path).want(t, path, status)
	}
	if got := l.list("/archive/later/", "Authorization", "Bearer uni-token").names(); !slices.Equal(got, []string{"new/", "old/"}) {
		t.Errorf("the reader sees %v", got)
	}

	// A client that has a page or an object learns of a change.
	page := l.get("/archive/allsky-1/deep/er/").header.Get("ETag")
	l.get("/archive/allsky-1/deep/er/", "If-None-Match", page).want(t, "unchanged", 304)
	last.State, last.Reason, last.RetractedAt = wire.StateRetracted, "the lens was covered", &now
	l.announce(camera, last)
	gone := l.until(410, "/archive/allsky-1/deep/er/c.jpg", "If-None-Match", etag(last.Digest))
	if gone.want(t, "retracted", 410); !strings.Contains(gone.body, "the lens was covered") || !strings.Contains(gone.body, wire.FormatTime(now)) {
		t.Errorf("it is not said why, or when: %s", gone.body)
	}
	if a := l.get("/archive/allsky-1/deep/er/", "If-None-Match", page); a.status == 304 {
		t.Error("a page that lost its object is unchanged")
	}
}
