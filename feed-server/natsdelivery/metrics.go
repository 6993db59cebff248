// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	leases   prometheus.Gauge
	failures prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		leases: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "substorm_feed_nats_leases_held", Help: "Leases of consumers of delivery NATS that this feed server holds."}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_feed_nats_failures_total", Help: "How often work for a consumer of delivery NATS failed and was begun anew."}),
	}
	registry.MustRegister(m.leases, m.failures)
	return m
}
