// SPDX-License-Identifier: Apache-2.0

package index

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/metric"
)

// Metrics outlive the keepers of one process.
type Metrics struct {
	entries, roots, summaries, failures, lost prometheus.Counter
	complete                                  prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	return &Metrics{
		entries:   metric.Counter(registry, "substorm_index_entries_total", "Entries of the index written by this archivist."),
		roots:     metric.Counter(registry, "substorm_index_roots_total", "Roots written by this archivist."),
		summaries: metric.Counter(registry, "substorm_index_summaries_total", "Days whose manifests were read because the index did not know them."),
		failures:  metric.Counter(registry, "substorm_index_failures_total", "How often this archivist gave the index up for a while because something failed."),
		lost:      metric.Counter(registry, "substorm_index_files_lost_total", "Files of manifests that the index named and the bucket did not have."),
		complete:  metric.Gauge(registry, "substorm_index_complete", "1 while this archivist keeps the index and it is complete."),
	}
}
