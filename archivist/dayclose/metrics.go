// SPDX-License-Identifier: Apache-2.0

package dayclose

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/metric"
)

// Metrics outlive the closers of one process.
type Metrics struct {
	closed   prometheus.Gauge
	reopened prometheus.Gauge
	written  *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	return &Metrics{
		closed:   metric.Gauge(registry, "substorm_ledger_closed_timestamp_seconds", "The end of the last day of the ledger that is closed with all days before it."),
		reopened: metric.Gauge(registry, "substorm_ledger_reopened_days", "Days of the ledger that were closed and changed since."),
		written:  metric.Counters(registry, "substorm_closed_days_written_total", "Versions of closed days that this archivist wrote.", "kind"),
	}
}
