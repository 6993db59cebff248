// SPDX-License-Identifier: Apache-2.0

package names

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/metric"
)

// Metrics outlive the rebuilders of one process.
type Metrics struct {
	complete  prometheus.Gauge
	claims    prometheus.Counter
	conflicts prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	return &Metrics{
		complete:  metric.Gauge(registry, "substorm_names_complete", "1 while this archivist holds the lease and all names that the archive lists have their claims."),
		claims:    metric.Counter(registry, "substorm_names_claims_restored_total", "Claims of names that were made anew, or completed, from the manifests."),
		conflicts: metric.Counter(registry, "substorm_names_claims_in_conflict_total", "Versions of names of which the claim says another digest than the manifests."),
	}
}
