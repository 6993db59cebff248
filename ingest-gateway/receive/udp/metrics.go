// SPDX-License-Identifier: Apache-2.0

package udp

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/wire"
)

type metrics struct {
	datagrams, bytes, drops *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		datagrams: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_gateway_datagrams_received_total",
			Help: "Datagrams that were read, by instrument; " + wire.UnknownInstrument + " for those that none claims.",
		}, []string{"instrument"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_gateway_datagram_bytes_received_total",
			Help: "Bytes of the payloads of datagrams that were read, by instrument.",
		}, []string{"instrument"}),
		drops: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_gateway_datagrams_dropped_total",
			Help: "Datagrams that were not kept, by instrument and cause.",
		}, []string{"instrument", "cause"}),
	}
	if reg != nil {
		reg.MustRegister(m.datagrams, m.bytes, m.drops)
	}
	return m
}

func (m *metrics) received(instrument string) (datagrams, bytes prometheus.Counter) {
	return m.datagrams.WithLabelValues(instrument), m.bytes.WithLabelValues(instrument)
}

func (m *metrics) dropped(instrument string, cause wire.Cause) prometheus.Counter {
	return m.drops.WithLabelValues(instrument, string(cause))
}

func registerBudget(reg prometheus.Registerer, b *budget) {
	if reg == nil {
		return
	}
	reg.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "substorm_gateway_telemetry_budget_bytes", Help: "Bytes of memory that telemetry messages may take.",
		}, func() float64 { return float64(b.size) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "substorm_gateway_telemetry_used_bytes", Help: "Bytes of memory that telemetry messages take.",
		}, func() float64 { return float64(b.used.Load()) }),
	)
}
