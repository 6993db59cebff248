// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/substorm/substorm/internal/wire"
)

func TestMeasure(t *testing.T) {
	var bytes, refused uint64
	cpu, spool := 0.3, 0.25
	reg := prometheus.NewPedanticRegistry()
	m := New(Config{Desc: prometheus.NewDesc("substorm_test_load", "What it says.", []string{"budget"}, nil), Metrics: reg, Bytes: func() uint64 { return bytes }, Refused: func() uint64 { return refused },
		Budgets: map[string]func() float64{wire.BudgetSpool: func() float64 { return spool }, wire.BudgetMemory: math.NaN}})
	m.cpu = func(time.Time) float64 { return cpu }
	at := time.Date(2026, 11, 21, 18, 0, 0, 0, time.UTC)
	if first := m.Measure(at); first != nil {
		t.Errorf("the first time there is nothing to compare with: %+v", first)
	}
	bytes, refused = 3000, 4
	at = at.Add(2 * time.Second)
	want := &wire.Load{Fill: map[string]float64{wire.BudgetCPU: 0.3, wire.BudgetSpool: 0.25, wire.BudgetMemory: 0}, BytesPerSecond: 1500, Refused: 4}
	if diff := cmp.Diff(want, m.Measure(at)); diff != "" {
		t.Error(diff)
	}
	if again := m.Measure(at); again != nil {
		t.Errorf("no time went by: %+v", again)
	}
	spool, cpu = 7, 1.2
	if got := m.Measure(at.Add(time.Second)); got.Fill[wire.BudgetSpool] != 1 || got.Fill[wire.BudgetCPU] != 1 || got.Refused != 0 {
		t.Errorf("a budget is full at most: %+v", got)
	}
	if n := testutil.CollectAndCount(m, "substorm_test_load"); n != 3 {
		t.Errorf("%d gauges", n)
	}
}
