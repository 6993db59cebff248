// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// TestLoadReport: a gateway reports how full each of its budgets is, and what came in, as its metrics do.
func TestLoadReport(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	g := l.start(t, gatewayOptions{})
	l.awaitRevision(t, g.name, l.declare(t, httpInstrument("camera", port)))
	awaitListening(t, port)
	var load *wire.Load
	came := false
	for i := range testenv.Attempts() {
		object := random(uint64(i), 100_000)
		put(in(port, "camera", "x"+strings.Repeat("y", i)), object).wantReceipt(t, 201, object)
		s, err := l.gatewayStatus(t, g.name)
		if err != nil || s.Load == nil {
			continue
		}
		load = s.Load
		if came = load.BytesPerSecond > 0; came {
			break
		}
	}
	if !came {
		t.Fatalf("nothing came in: %+v", load)
	}
	budgets := []string{wire.BudgetConnections, wire.BudgetCPU, wire.BudgetMemory, wire.BudgetReceiveQueue, wire.BudgetSpool}
	if is := slices.Sorted(maps.Keys(load.Fill)); !slices.Equal(is, budgets) {
		t.Errorf("budgets: %v", is)
	}
	for budget, fill := range load.Fill {
		if fill < 0 || fill > 1 {
			t.Errorf("%s is filled to %v", budget, fill)
		}
		g.metric(`substorm_gateway_load{budget="` + budget + `"}`)
	}
}
