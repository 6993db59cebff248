// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/wire"
)

// TestMeter: requests refused for want of a place are counted apart from requests that one client makes
// too often.
func TestMeter(t *testing.T) {
	t.Parallel()
	metrics := prometheus.NewPedanticRegistry()
	a := NewAdmission(AdmissionConfig{MaxSockets: 8, MaxConnections: 4, Limits: Limits{Robot: Rate{PerSecond: 0.001, Burst: 1}, Patience: time.Nanosecond},
		Logger: slog.New(slog.DiscardHandler), Metrics: metrics})
	sent := uint64(0)
	meter := a.Meter(func() uint64 { return sent }, metrics)
	now := time.Now()
	meter.Measure(now)
	request := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	for range 10 { // of eight places two are kept for readers: the other six are taken
		_, _ = a.Enter(request, Identity{}, People)
	}
	for range 3 {
		_ = a.Wait(request, uni)
	}
	_, _ = a.Connections.Enter(address(1), uni)
	sent = 5000
	load := meter.Measure(now.Add(time.Second))
	if load.BytesPerSecond != 5000 || load.Answered != 6 || load.Limited != 2 {
		t.Errorf("%+v", load)
	}
	if load.Fill[wire.BudgetBacklog] != 1 || load.Fill[wire.BudgetEventStreams] != 0.25 || load.Fill[wire.BudgetConnections] != 0 {
		t.Errorf("%+v", load.Fill)
	}
	// One address has all places that anonymous clients may have: it may have no more, and no client lacked a
	// place.
	if load.Refused != 0 {
		t.Errorf("%d were refused for want of a place", load.Refused)
	}
	request.RemoteAddr = "198.51.100.7:1"
	if _, refused := a.Enter(request, Identity{}, People); refused == nil || refused.Status != http.StatusServiceUnavailable {
		t.Fatalf("%+v", refused)
	}
	if load = meter.Measure(now.Add(2 * time.Second)); load.Refused != 1 || load.Answered != 0 {
		t.Errorf("%+v", load)
	}
}
