// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

type told struct {
	Instrument, Reader string
	Class              Class
	Status             int
	Bytes              int64
}

// Each answer is counted with its instrument, its reader, and what was sent.
func TestAccessCheckCounts(t *testing.T) {
	t.Parallel()
	snapshot := &registry.Snapshot{
		Revision: 1,
		Instruments: map[string]wire.InstrumentEntry{
			"open":   {Instrument: "open", Access: &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}},
			"closed": {Instrument: "closed", Access: &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessRestricted, Readers: []string{"uni"}}},
		},
		Readers: map[string]wire.ReaderEntry{"uni": {Tokens: []wire.TokenHash{wire.HashToken([]byte("salt"), "secret")}}},
	}
	all := make(chan told, 1)
	g := NewAccessCheck(AccessCheckConfig{
		Registry: func() *registry.Snapshot { return snapshot }, Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
		Count: func(instrument, reader string, class Class, status int, bytes int64) {
			all <- told{instrument, reader, class, status, bytes}
		},
	})
	mux := http.NewServeMux()
	mux.HandleFunc("/a/{name}", g.Answer(func(v *Request) *problem.Problem {
		if _, p := v.Instrument(v.PathValue("name"), v.URL.Path); p != nil {
			return p
		}
		v.Finish(v.URL.Path, v.Send([]byte("data of "+v.Reader.String())))
		return nil
	}))
	mux.HandleFunc("/b/", g.Handle(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		RequestOf(r).About("open")
		_, _ = io.WriteString(w, RequestOf(r).Base())
	})))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	base := strings.TrimPrefix(server.URL, "http://")
	for _, c := range []struct {
		method, url string
		want        told
	}{
		{"GET", "http://" + base + "/a/open", told{"open", "", Robot, 200, 8}},
		{"GET", "http://x:secret@" + base + "/a/open", told{"open", "uni", Robot, 200, 11}},
		{"GET", "http://x:secret@" + base + "/a/closed", told{"closed", "uni", Robot, 200, 11}},
		{"GET", "http://x:guess@" + base + "/a/open", told{"", "", Robot, 401, -1}},
		{"GET", "http://" + base + "/a/closed", told{"closed", "", Robot, 401, -1}},
		{"GET", "http://" + base + "/a/none", told{"", "", Robot, 404, -1}},
		{"PUT", "http://" + base + "/a/open", told{"", "", Robot, 405, -1}},
		{"OPTIONS", "http://" + base + "/a/open", told{"", "", Robot, 204, 0}},
		{"GET", "http://" + base + "/b/x", told{"open", "", Robot, 200, int64(len(server.URL))}},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		got := <-all
		if c.want.Bytes < 0 {
			c.want.Bytes = got.Bytes
		}
		if diff := cmp.Diff(c.want, got); diff != "" || resp.StatusCode != c.want.Status {
			t.Errorf("%s %s: %d (-want +got):\n%s", c.method, c.url, resp.StatusCode, diff)
		}
	}
}

// Answers that do not end by themselves are bounded, and end when the replica stops.
func TestEvents(t *testing.T) {
	t.Parallel()
	draining := make(chan struct{})
	log, metrics := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	g := NewAccessCheck(AccessCheckConfig{
		Registry: func() *registry.Snapshot { return &registry.Snapshot{Revision: 1} }, Logger: log, Metrics: metrics, Draining: draining,
		Admission: NewAdmission(AdmissionConfig{MaxConnections: 1, Logger: log, Metrics: metrics}),
	})
	events := make(chan Event, 1)
	server := httptest.NewServer(g.Answer(func(v *Request) *problem.Problem {
		return Follow(v, events, func(e Event) (*Event, error) { return &e, nil })
	}))
	t.Cleanup(server.Close)
	client := server.Client()
	client.Timeout = time.Minute
	first, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Body.Close()
	events <- Event{Kind: "object", ID: "7", Data: []byte(`{"a":1}`)}
	const want = "retry: 1000\n\nevent: object\nid: 7\ndata: {\"a\":1}\n\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(first.Body, got); err != nil || string(got) != want {
		t.Fatalf("%q, %v", got, err)
	}
	second, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	second.Body.Close()
	if second.StatusCode != http.StatusServiceUnavailable || second.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: %d", second.StatusCode)
	}
	close(draining)
	if rest, err := io.ReadAll(first.Body); err != nil || len(rest) != 0 {
		t.Errorf("%q, %v", rest, err)
	}
}
