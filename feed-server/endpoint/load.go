// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/load"
	"github.com/substorm/substorm/internal/wire"
)

var loadGauge = prometheus.NewDesc("substorm_feed_load", "How full each budget of this pod was when it last reported, 0 to 1.", []string{"budget"}, nil)

// Meter measures what the operator scales feed servers by. Sent is how many bytes were sent since the start.
func (a *Admission) Meter(sent func() uint64, metrics prometheus.Registerer) *load.Meter {
	return load.New(load.Config{
		Metrics: metrics, Desc: loadGauge,
		Budgets: map[string]func() float64{
			wire.BudgetConnections:  a.Sockets.Fill,
			wire.BudgetEventStreams: a.Connections.Fill,
			wire.BudgetBacklog:      a.requests.Fill,
		},
		Bytes:    sent,
		Answered: func() uint64 { answered, _ := a.requests.counts(); return answered },
		Refused:  a.lacked,
		Limited:  a.limiter.limited.Load,
	})
}

// lacked is how many requests and live connections found no place, or gave way to others.
func (a *Admission) lacked() uint64 {
	_, requests := a.requests.counts()
	_, connections := a.Connections.counts()
	return requests + connections + a.Precedence.TurnedAway()
}
