// SPDX-License-Identifier: Apache-2.0

package names

import "github.com/prometheus/client_golang/prometheus"

// Metrics outlive the rebuilders of one process.
type Metrics struct {
	complete  prometheus.Gauge
	claims    prometheus.Counter
	conflicts prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		complete: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "substorm_names_complete", Help: "1 while this archivist holds the lease and all names that the archive lists have their claims."}),
		claims: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_names_claims_restored_total", Help: "Claims of names that were made anew, or completed, from the manifests."}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_names_claims_in_conflict_total", Help: "Versions of names of which the claim says another digest than the manifests."}),
	}
	registry.MustRegister(m.complete, m.claims, m.conflicts)
	return m
}
