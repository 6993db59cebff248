// SPDX-License-Identifier: Apache-2.0

package udp

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/metric"
	"github.com/substorm/substorm/internal/wire"
)

type metrics struct {
	datagrams, bytes, drops *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	return &metrics{
		datagrams: metric.Counters(reg, "substorm_gateway_datagrams_received_total",
			"Datagrams that were read, by instrument; "+wire.UnknownInstrument+" for those that none claims.", "instrument"),
		bytes: metric.Counters(reg, "substorm_gateway_datagram_bytes_received_total",
			"Bytes of the payloads of datagrams that were read, by instrument.", "instrument"),
		drops: metric.Counters(reg, "substorm_gateway_datagrams_dropped_total",
			"Datagrams that were not kept, by instrument and cause.", "instrument", "cause"),
	}
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
	metric.GaugeFunc(reg, "substorm_gateway_telemetry_budget_bytes", "Bytes of memory that telemetry messages may take.",
		func() float64 { return float64(b.size) })
	metric.GaugeFunc(reg, "substorm_gateway_telemetry_used_bytes", "Bytes of memory that telemetry messages take.",
		func() float64 { return float64(b.used.Load()) })
}
