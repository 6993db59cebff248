// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/metric"
)

type metrics struct {
	leases   prometheus.Gauge
	failures prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	return &metrics{
		leases: metric.Gauge(registry, "substorm_feed_nats_leases_held", "Leases of consumers of delivery NATS that this feed server holds."),
		failures: metric.Counter(registry, "substorm_feed_nats_failures_total",
			"How often work for a consumer of delivery NATS failed and was begun anew."),
	}
}
