// SPDX-License-Identifier: Apache-2.0

package gaps

import "github.com/prometheus/client_golang/prometheus"

// Metrics outlive the keepers of one process.
type Metrics struct {
	found, closed *prometheus.CounterVec
	failures      prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		found: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_gaps_found_total", Help: "Gaps in what instruments observe that this archivist found."}, []string{"cause"}),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_gaps_closed_total", Help: "Gaps that what came late has filled."}, []string{"cause"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_gaps_failures_total", Help: "How often an instrument's gaps could not be looked for."}),
	}
	registry.MustRegister(m.found, m.closed, m.failures)
	return m
}
