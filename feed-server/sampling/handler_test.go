// SPDX-License-Identifier: Apache-2.0

package sampling

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const site = "hub"

func entries() map[string]wire.InstrumentEntry {
	listeners := []wire.ListenerEntry{{Protocol: wire.ProtocolUDP, Channel: "raw"}}
	each := wire.ChannelSampling{State: wire.SamplingObserving, IntervalMillis: 10_000}
	return map[string]wire.InstrumentEntry{
		"mag": {Instrument: "mag", Listeners: listeners, Sampling: &wire.SamplingEntry{ConsumersMayAsk: true, MinIntervalMillis: 100,
			Channels: []wire.ChannelSampling{each, {Channel: "dark", State: wire.SamplingPaused}}}},
		"shy":    {Instrument: "shy", Listeners: listeners, Sampling: &wire.SamplingEntry{Channels: []wire.ChannelSampling{each}}},
		"plain":  {Instrument: "plain", Listeners: listeners},
		"secret": {Instrument: "secret", Listeners: listeners},
	}
}

type endpoint struct {
	t           *testing.T
	handler     *Handler
	kv          jetstream.KeyValue
	instruments map[string]wire.InstrumentEntry
}

func newEndpoint(t *testing.T) (*endpoint, *testenv.NATSServer) {
	t.Helper()
	nats := testenv.NATS(t, testenv.NATSOptions{})
	js := nats.JetStream(t)
	testenv.CreateSite(t, js, site)
	kv, err := js.KeyValue(t.Context(), wire.RequestBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	all := entries()
	return &endpoint{t, New(Config{Site: site, JetStream: js, Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
		Instrument: func(name string) (wire.InstrumentEntry, bool) { e, ok := all[name]; return e, ok }}), kv, all}, nats
}

func (d *endpoint) do(method, query, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	d.handler.Serve(w, httptest.NewRequest(method, "/feeds/all/sampling?"+query, strings.NewReader(body)), "browser", func(name string) bool { return name != "secret" })
	return w
}

func TestAsk(t *testing.T) {
	d, _ := newEndpoint(t)
	w := d.do(http.MethodPost, "", `{"instrument": "mag", "channel": "raw", "interval": "200ms"}`)
	var answer Answer
	if err := json.Unmarshal(w.Body.Bytes(), &answer); w.Code != http.StatusOK || err != nil || time.Until(answer.ExpiresAt) > wire.RequestTTL || answer.Interval != "200ms" {
		t.Fatalf("%d %s, %v", w.Code, w.Body, err)
	}
	e, err := d.kv.Get(t.Context(), wire.SamplingRequestKey("mag", "raw", "browser"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := wire.Decode[wire.SamplingRequest](e.Value())
	if err != nil || r.IntervalMillis != 200 || r.Consumer != "browser" || r.Channel != "raw" || r.Instrument != "mag" {
		t.Errorf("%+v, %v", r, err)
	}
	if w := d.do(http.MethodPost, "", `{"instrument": "mag", "interval": "100ms"}`); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := d.do(http.MethodDelete, "instrument=mag&channel=raw", ""); w.Code != http.StatusNoContent {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if _, err := d.kv.Get(t.Context(), wire.SamplingRequestKey("mag", "raw", "browser")); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("what was cancelled stands: %v", err)
	}
	if _, err := d.kv.Get(t.Context(), wire.SamplingRequestKey("mag", "", "browser")); err != nil {
		t.Errorf("the other one does not: %v", err)
	}
	if w := d.do(http.MethodDelete, "instrument=mag&channel=raw", ""); w.Code != http.StatusNoContent {
		t.Errorf("cancelling what is none any more: %d %s", w.Code, w.Body)
	}
}

// A pending request can be cancelled even if the Instrument has gone, or accepts no requests any
// more; nothing is written for a request that does not exist, whatever names are tried.
func TestDuplicates(t *testing.T) {
	d, _ := newEndpoint(t)
	written := func() uint64 {
		s, err := d.handler.cfg.JetStream.Stream(t.Context(), "KV_"+wire.RequestBucket(site))
		if err != nil {
			t.Fatal(err)
		}
		return s.CachedInfo().State.LastSeq
	}
	for n := range 20 {
		for query, want := range map[string]int{
			fmt.Sprintf("instrument=no-such-%d&channel=raw", n): http.StatusNotFound,
			fmt.Sprintf("instrument=mag&channel=no-such-%d", n): http.StatusNotFound,
			fmt.Sprintf("instrument=secret&channel=ch-%d", n):   http.StatusNotFound,
			fmt.Sprintf("instrument=shy&channel=ch-%d", n):      http.StatusForbidden,
		} {
			if w := d.do(http.MethodDelete, query, ""); w.Code != want {
				t.Errorf("%s: %d %s, want %d", query, w.Code, w.Body, want)
			}
		}
	}
	if n := written(); n != 0 {
		t.Errorf("%d messages are written of what is none", n)
	}
	for name, change := range map[string]func(){
		"gone":   func() { delete(d.instruments, "mag") },
		"denied": func() { d.instruments["mag"] = d.instruments["shy"] },
	} {
		d.instruments["mag"] = entries()["mag"]
		if w := d.do(http.MethodPost, "", `{"instrument": "mag", "channel": "raw", "interval": "200ms"}`); w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		change()
		if w := d.do(http.MethodDelete, "instrument=mag&channel=raw", ""); w.Code != http.StatusNoContent {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		if _, err := d.kv.Get(t.Context(), wire.SamplingRequestKey("mag", "raw", "browser")); !errors.Is(err, jetstream.ErrKeyNotFound) {
			t.Errorf("%s: what was cancelled stands: %v", name, err)
		}
	}
}

func TestRefused(t *testing.T) {
	d, _ := newEndpoint(t)
	for _, c := range []struct {
		method, query, body string
		status              int
		result              result
		says                string
	}{
		{"POST", "", `{"instrument": "shy", "interval": "1s"}`, http.StatusForbidden, resultDenied, "consumerRequests"},
		{"POST", "", `{"instrument": "plain", "interval": "1s"}`, http.StatusForbidden, resultDenied, "consumerRequests"},
		{"POST", "", `{"instrument": "mag", "channel": "dark", "interval": "1s"}`, http.StatusForbidden, resultPaused, "Paused"},
		{"POST", "", `{"instrument": "mag", "interval": "99ms"}`, http.StatusForbidden, resultTooOften, "100ms"},
		{"POST", "", `{"instrument": "mag", "channel": "light", "interval": "1s"}`, http.StatusNotFound, resultUnknownChannel, "light"},
		{"POST", "", `{"instrument": "gone", "interval": "1s"}`, http.StatusNotFound, resultUnknownInstrument, "gone"},
		{"POST", "", `{"instrument": "secret", "interval": "1s"}`, http.StatusNotFound, resultUnknownInstrument, "secret"},
		{"POST", "", `{"instrument": "mag", "interval": "soon"}`, http.StatusBadRequest, resultBadRequest, "soon"},
		{"POST", "", `{"instrument": "mag", "interval": "-1s"}`, http.StatusBadRequest, resultBadRequest, "-1s"},
		{"POST", "", `{"instrument": "mag", "interval": "1µs"}`, http.StatusBadRequest, resultBadRequest, "1ms"},
		{"POST", "", `{"instrument": "mag", "rate": 5}`, http.StatusBadRequest, resultBadRequest, "rate"},
		{"POST", "", `hello`, http.StatusBadRequest, resultBadRequest, "interval"},
		{"POST", "", `{"instrument": "` + strings.Repeat("x", maxBody) + `"}`, http.StatusBadRequest, resultBadRequest, "interval"},
		{"DELETE", "instrument=gone", "", http.StatusNotFound, resultUnknownInstrument, "gone"},
		{"DELETE", "instrument=mag&channel=light", "", http.StatusNotFound, resultUnknownChannel, "light"},
		{"DELETE", "", "", http.StatusBadRequest, resultBadRequest, "instrument"},
		{"DELETE", "instrument=a.b", "", http.StatusBadRequest, resultBadRequest, "instrument"},
		{"DELETE", "instrument=*&channel=>", "", http.StatusBadRequest, resultBadRequest, "instrument"},
		{"DELETE", "instrument=" + strings.Repeat("x", 8<<10), "", http.StatusBadRequest, resultBadRequest, "instrument"},
		{"PUT", "", "", http.StatusMethodNotAllowed, resultBadRequest, "POST"},
	} {
		before := testutil.ToFloat64(d.handler.asked.WithLabelValues(string(c.result)))
		w := d.do(c.method, c.query, c.body)
		var p problem.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != c.status || p.Status != c.status || !strings.Contains(p.Detail, c.says) ||
			w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s %.60s: %d %s, %v; want %d with %q", c.method, c.query, c.body, w.Code, w.Body, err, c.status, c.says)
		}
		if n := testutil.ToFloat64(d.handler.asked.WithLabelValues(string(c.result))); n != before+1 {
			t.Errorf("%s %.60s: counted %v times as %s", c.method, c.body, n-before, c.result)
		}
	}
	if keys, err := d.kv.Keys(t.Context()); !errors.Is(err, jetstream.ErrNoKeysFound) {
		t.Errorf("the bucket holds %v, %v", keys, err)
	}
}

// While NATS is away the consumer gets 503 with Retry-After.
func TestUnavailable(t *testing.T) {
	d, nats := newEndpoint(t)
	nats.Stop()
	ask := `{"instrument": "mag", "interval": "1s"}`
	if w := d.do(http.MethodPost, "", ask); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
