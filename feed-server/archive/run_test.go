// SPDX-License-Identifier: Apache-2.0

package archive_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/feed-server/archive"
	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/wire"
)

// A robot that asks again and again how long a run is costs the store nothing: not even
// where no manifest fits in memory, and of what is new only what is.
func TestRunAsked(t *testing.T) {
	t.Parallel()
	tcp := []wire.ListenerEntry{{Protocol: wire.ProtocolTCP, Port: 5000}}
	a := archivetest.New(t, wire.InstrumentEntry{Instrument: "a", Listeners: tcp, Access: archivetest.Public},
		wire.InstrumentEntry{Instrument: "b", Listeners: tcp, Access: archivetest.Public}, wire.InstrumentEntry{Instrument: "elsewhere", Listeners: tcp, Access: archivetest.Public})
	came := func(instrument string, number int, port uint16) wire.Record {
		return a.Put(instrument, fmt.Sprint(number), fmt.Sprintf("%010d", number), func(r *wire.Record) {
			r.ReceivedAt, r.Port = storm.Add(time.Duration(number)*time.Second), port
		})
	}
	var last wire.Record
	for i := range 5 {
		came("a", i, 5000)
		came("b", i, 5000)
		last = came("elsewhere", i, 5001)
	}
	a.Wait(last)
	a.List()

	var gets atomic.Int64
	quiet := prometheus.NewRegistry()
	forgetful := catalog.New(catalog.Config{Site: archivetest.Site, JetStream: a.JetStream, Store: counted{a.Store, &gets}, Memory: 1, Log: a.Logger, Registerer: quiet})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- forgetful.Run(ctx) }()
	defer func() { stop(); <-ended }()
	mux := http.NewServeMux()
	for pattern, serve := range archive.New(archive.Config{Site: archivetest.Site, Catalog: archive.Manifests{Catalog: forgetful}, Store: counted{a.Store, &gets},
		AccessCheck: a.AccessCheck, Logger: a.Logger, Metrics: quiet}).Endpoints() {
		mux.HandleFunc(pattern, serve)
	}
	server := httptest.NewServer(mux)
	defer server.Close()
	l := &lab{t: t, url: server.URL}

	const at = "/legacy/192.0.2.7/5000/2015/03/17"
	first := l.ask(http.MethodHead, at)
	first.want(t, "HEAD", 200)
	if n := gets.Swap(0); n != 3 {
		t.Errorf("%d requests to the store for the manifests of three instruments", n)
	}
	for range 10 {
		if again := l.ask(http.MethodHead, at); again.status != 200 || again.header.Get("Content-Length") != "100" || again.header.Get("ETag") != first.header.Get("ETag") {
			t.Errorf("HEAD again: %d %v", again.status, again.header)
		}
		l.get(at, "If-None-Match", first.header.Get("ETag")).want(t, "unchanged", 304)
		l.get(at, "If-Match", `"another"`).want(t, "another is meant", 412)
	}
	if n := gets.Swap(0); n != 0 {
		t.Errorf("%d requests to the store for what did not change", n)
	}
	if whole := l.get(at); len(whole.body) != 100 || whole.header.Get("ETag") != first.header.Get("ETag") {
		t.Errorf("whole: %d %v", len(whole.body), whole.header)
	}
	gets.Store(0)
	came("b", 5, 5000)
	var grown answer
	a.Until("what is new is there", func() bool {
		grown = l.ask(http.MethodHead, at)
		return grown.header.Get("Content-Length") == "110"
	})
	if n := gets.Load(); n != 1 {
		t.Errorf("%d requests to the store for one manifest over which something is new", n)
	}
	l.get(at, "If-None-Match", first.header.Get("ETag")).want(t, "changed", 200)
	l.get(at, "If-None-Match", grown.header.Get("ETag")).want(t, "unchanged", 304)
}

// Objects that ranges of a run cut are held in the memory that all objects share, each once;
// without enough memory they are compared with their digests all the same.
func TestRunCut(t *testing.T) {
	t.Parallel()
	for memory, requests := range map[int64]int64{archiveMemory: 1, 1000: 2 * cuts} {
		l := newLab(t, func(c *config) { c.Memory = memory }, wire.InstrumentEntry{Instrument: "a",
			Listeners: []wire.ListenerEntry{{Protocol: wire.ProtocolTCP, Port: 5000}}, Access: archivetest.Public})
		body := noise(1 << 20)
		l.put("a", "1", body, func(r *wire.Record) { r.Port = 5000 })
		var all sync.WaitGroup
		for i := range cuts {
			all.Go(func() {
				if a := l.get("/legacy/192.0.2.7/5000/2015/03/17", "Range", fmt.Sprintf("bytes=%d-", i+1)); a.status != 206 || a.body != body[i+1:] {
					t.Errorf("%d with %d bytes", a.status, len(a.body))
				}
			})
		}
		all.Wait()
		if n := l.gets.Load(); n != requests {
			t.Errorf("with %d bytes of memory %d requests to the store, want %d", memory, n, requests)
		}
	}
}

const (
	archiveMemory = 16 << 20
	// cuts are the ranges that are asked for at once.
	cuts = 20
)
