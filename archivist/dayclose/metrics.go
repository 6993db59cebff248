// SPDX-License-Identifier: Apache-2.0

package dayclose

import "github.com/prometheus/client_golang/prometheus"

// Metrics outlive the closers of one process.
type Metrics struct {
	closed   prometheus.Gauge
	reopened prometheus.Gauge
	written  *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		closed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "substorm_ledger_closed_timestamp_seconds", Help: "The end of the last day of the ledger that is closed with all days before it."}),
		reopened: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "substorm_ledger_reopened_days", Help: "Days of the ledger that were closed and changed since."}),
		written: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_closed_days_written_total", Help: "Versions of closed days that this archivist wrote."}, []string{"kind"}),
	}
	registry.MustRegister(m.closed, m.reopened, m.written)
	return m
}
