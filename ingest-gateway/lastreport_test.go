// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"testing"

	"github.com/substorm/substorm/e2e/parts"
	"github.com/substorm/substorm/internal/wire"
)

// A gateway that is drained says that it stopped once its last totals are in the ledger,
// and one that could not write them says that.
func TestLastReport(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := parts.FreePort(t)
	g := l.start(t, gatewayOptions{})
	l.awaitRevision(t, g.name, l.declare(t, httpInstrument("camera", port)))
	awaitListening(t, port)
	object := random(1, 100_000)
	put(in(port, "camera", "x"), object).wantReceipt(t, 201, object)
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	if s, err := l.gatewayStatus(t, g.name); err != nil || !s.Stopped || s.Unwritten {
		t.Errorf("the last report: %+v, %v", s, err)
	}
	if totals := l.ledger(t, "camera", wire.StepReceived); totals.Objects != 1 {
		t.Errorf("received when it has stopped: %+v", totals)
	}
	// Without its ledger it cannot write.
	g = l.start(t, gatewayOptions{dir: g.dir})
	g.awaitReady()
	awaitListening(t, port)
	if err := l.js.DeleteKeyValue(t.Context(), wire.LedgerBucket(l.site)); err != nil {
		t.Fatal(err)
	}
	other := random(2, 100_000)
	put(in(port, "camera", "y"), other).wantReceipt(t, 201, other)
	_ = g.stop()
	if s, err := l.gatewayStatus(t, g.name); err != nil || !s.Stopped || !s.Unwritten {
		t.Errorf("the last report without a ledger: %+v, %v", s, err)
	}
}
