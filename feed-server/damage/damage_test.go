// SPDX-License-Identifier: Apache-2.0

package damage

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const site = "thule"

// An object is reported once, and the archivist's own entry for it is not overwritten.
func TestTell(t *testing.T) {
	js := testenv.NATS(t, testenv.NATSOptions{}).JetStream(t)
	testenv.CreateSite(t, js, site)
	kv, err := js.KeyValue(t.Context(), wire.StatusBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	record := func(id string) wire.Record {
		return wire.Record{ID: id, Key: id, Size: 5, State: wire.StateCurrent, ReceivedAt: at}
	}
	confirmed := wire.DamageOf("allsky-1", record("known"), wire.DamageDamaged, "scrub", at)
	confirmed.Confirmed = true
	value, err := wire.Encode(confirmed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), wire.DamageKey("allsky-1", "known"), value); err != nil {
		t.Fatal(err)
	}

	teller := New(Config{Site: site, Pod: "feed-0", JetStream: js, Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	for range 2 {
		teller.Tell("allsky-1", record("new"), true)
		teller.Tell("allsky-1", record("known"), false)
	}
	for range 2 * queue {
		teller.Tell("allsky-1", record("more"), false)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- teller.Run(ctx) }()
	testenv.Await(t, "all that waits is told", func() bool {
		_, err := kv.Get(t.Context(), wire.DamageKey("allsky-1", "more"))
		return err == nil && len(teller.queue) == 0
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for id, want := range map[string]wire.Damage{
		"new":   {Cause: wire.DamageMissing, FoundBy: "feed-0"},
		"known": {Cause: wire.DamageDamaged, FoundBy: "scrub", Confirmed: true},
	} {
		e, err := kv.Get(t.Context(), wire.DamageKey("allsky-1", id))
		if err != nil {
			t.Fatal(err)
		}
		d, err := wire.Decode[wire.Damage](e.Value())
		if err != nil || d.ID != id || d.Cause != want.Cause || d.FoundBy != want.FoundBy || d.Confirmed != want.Confirmed {
			t.Errorf("%s: %+v, %v", id, d, err)
		}
	}
	for result, want := range map[string]float64{"Told": 2, "Known": 1, "Overflow": queue + 4} {
		if n := testutil.ToFloat64(teller.count.WithLabelValues(result)); n != want {
			t.Errorf("%s: %v, want %v", result, n, want)
		}
	}
}
