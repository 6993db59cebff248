// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/wire"
)

type metrics struct {
	leases   prometheus.Gauge
	failures prometheus.Counter
	gaps     *prometheus.CounterVec
	missing  *prometheus.CounterVec
	filled   prometheus.Counter
	bytes    prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		leases: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "substorm_nats_delivery_leases_held", Help: "Leases of consumers of delivery NATS that this feed server holds."}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_nats_delivery_failures_total", Help: "How often work for a consumer of delivery NATS failed and was begun anew."}),
		gaps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_nats_delivery_gap_records_total", Help: "Gap records published for consumers of delivery NATS and mode All."}, []string{"reason"}),
		missing: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_nats_delivery_missing_messages_total", Help: "Messages that those records count."}, []string{"reason"}),
		filled: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_nats_delivery_filled_messages_total", Help: "Notices and datagrams put into the streams of consumers of modes Latest and Sample."}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_nats_delivery_filled_bytes_total", Help: "Bytes of them."}),
	}
	for _, reason := range []wire.GapReason{wire.GapRetention, wire.GapStreamRecreated, wire.GapConsumerDeleted} {
		m.gaps.WithLabelValues(string(reason))
		m.missing.WithLabelValues(string(reason))
	}
	registry.MustRegister(m.leases, m.failures, m.gaps, m.missing, m.filled, m.bytes)
	return m
}
