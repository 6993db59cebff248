// SPDX-License-Identifier: Apache-2.0

package gaps

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/metric"
)

// Metrics outlive the keepers of one process.
type Metrics struct {
	found, closed *prometheus.CounterVec
	failures      prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	return &Metrics{
		found:    metric.Counters(registry, "substorm_gaps_found_total", "Gaps in what instruments observe that this archivist found.", "cause"),
		closed:   metric.Counters(registry, "substorm_gaps_closed_total", "Gaps that what came late has filled.", "cause"),
		failures: metric.Counter(registry, "substorm_gaps_failures_total", "How often an instrument's gaps could not be looked for."),
	}
}
