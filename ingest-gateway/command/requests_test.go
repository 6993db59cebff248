// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

func newHub() *Hub {
	return New(Config{Site: "hub", Registry: intake.NewRegistry(), Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
}

// stands returns how many requests for an instrument stand.
func (h *Hub) stands(instrument string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.of(instrument))
}

// Requests lapse one by one.
func TestLapse(t *testing.T) {
	h, now := newHub(), time.Now()
	for name, left := range map[string]time.Duration{"mag": time.Second, "spectra": time.Minute} {
		h.requests[name] = request{wire.SamplingRequest{Instrument: name}, now.Add(left)}
	}
	for _, c := range []struct {
		after        time.Duration
		mag, spectra int
	}{{0, 1, 1}, {time.Second - 1, 1, 1}, {time.Second, 0, 1}, {time.Hour, 0, 0}} {
		h.lapse(now.Add(c.after))
		if mag, spectra := h.stands("mag"), h.stands("spectra"); mag != c.mag || spectra != c.spectra {
			t.Errorf("after %v %d and %d stand, want %d and %d", c.after, mag, spectra, c.mag, c.spectra)
		}
	}
}

// A request that is not renewed lapses by itself: JetStream does not report entries that expire.
// One that is renewed stays.
func TestRequestsLapse(t *testing.T) {
	js := testenv.NATS(t, testenv.NATSOptions{Unsynced: true}).JetStream(t)
	testenv.CreateSite(t, js, "hub")
	kv, err := js.UpdateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: wire.RequestBucket("hub"), Storage: jetstream.FileStorage, History: 1, TTL: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	h := newHub()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { h.Run(ctx, js) })
	t.Cleanup(func() { stop(); running.Wait() })
	ask := func(instrument string) {
		t.Helper()
		record, err := wire.Encode(wire.SamplingRequest{Instrument: instrument, Consumer: "browser", IntervalMillis: 200, At: time.Now()})
		if err == nil {
			_, err = kv.Put(t.Context(), wire.SamplingRequestKey(instrument, "", "browser"), record)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	testenv.Await(t, "what is asked for is known", func() bool {
		if h.stands("once") > 0 {
			return true
		}
		ask("once")
		return false
	})
	testenv.Await(t, "what nobody renews lapses", func() bool {
		if h.stands("once") == 0 {
			return true
		}
		ask("again")
		return false
	})
	if h.stands("again") != 1 {
		t.Error("what is renewed does not stand")
	}
}
