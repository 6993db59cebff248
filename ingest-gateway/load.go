// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/ingest-gateway/receive/listen"
	"github.com/substorm/substorm/internal/load"
	"github.com/substorm/substorm/internal/wire"
)

var loadGauge = prometheus.NewDesc("substorm_gateway_load", "How full each budget of this pod was when it last reported, 0 to 1.", []string{"budget"}, nil)

// newMeter measures what the operator scales pools by.
func (g *gateway) newMeter(slots *listen.Slots) *load.Meter {
	return load.New(load.Config{
		Metrics: g.metrics, Desc: loadGauge,
		Budgets: map[string]func() float64{
			wire.BudgetMemory:       g.memoryFill,
			wire.BudgetReceiveQueue: func() float64 { _, queue := g.udp.Fill(); return queue },
			wire.BudgetSpool:        func() float64 { s := g.spool.Stats(); return load.Fill(s.Used, s.Size) },
			wire.BudgetConnections:  slots.Fill,
		},
		Bytes: func() uint64 {
			_, bytes := g.udp.Traffic()
			return g.pool.Received() + bytes
		},
		Packets: func() uint64 { packets, _ := g.udp.Traffic(); return packets },
	})
}

// memoryFill is the fill level of the fullest part of the memory: objects and telemetry have a part
// each.
func (g *gateway) memoryFill() float64 {
	objects := g.pool.Stats()
	telemetry, _ := g.udp.Fill()
	return max(load.Fill(objects.MemoryUsed, objects.Budget), telemetry)
}
