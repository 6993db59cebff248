// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan/bus"
)

// The key of one pod cannot be used to report about other pods: each of them would be kept for as long as the operator runs.
func TestReportsOfOtherPods(t *testing.T) {
	t.Parallel()
	r, now := newReports(slog.New(slog.DiscardHandler)), time.Now()
	woken := 0
	r.gatewayChanged = func(string, bool) { woken++ }
	for _, name := range []string{"pool-0", "pool-1", "other-0", ""} {
		value, err := wire.Encode(wire.GatewayStatus{Gateway: name, Pool: "pool"})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.takeGateway("pool-0", value, now, now); (err == nil) != (name == "pool-0") {
			t.Errorf("a report of %q under the key of pool-0: %v", name, err)
		}
	}
	if all := r.ofPool("pool"); len(all) != 1 || all[0].Gateway != "pool-0" || woken != 1 {
		t.Errorf("%d are woken for %+v", woken, all)
	}
}

// A reader's report goes with its entry in spec.pulledBy.
func TestForgottenPuller(t *testing.T) {
	t.Parallel()
	r, now := newReports(slog.New(slog.DiscardHandler)), time.Now()
	r.ledgerChanged = func() {}
	value, err := wire.Encode(wire.PullerStatus{ReportedAt: now})
	if err != nil {
		t.Fatal(err)
	}
	for _, reader := range []string{"hub", "left"} {
		r.takePuller(reader, value)
	}
	key := wire.PullerStatusKey("left")
	if stale := r.stale(bus.Plan{Pullers: []string{"hub"}}, now); !slices.Equal(stale, []string{key}) {
		t.Errorf("stale are %q", stale)
	}
	r.forgetPuller(key)
	if all := r.ofPullers(); len(all) != 1 || all["hub"].ReportedAt.IsZero() {
		t.Errorf("kept are %+v", all)
	}
	if stale := r.stale(bus.Plan{Pullers: []string{"hub"}}, now); len(stale) > 0 {
		t.Errorf("stale are %q", stale)
	}
}
