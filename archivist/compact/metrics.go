// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/metric"
)

// Metrics outlive the compactors of one process.
type Metrics struct {
	packs, members, removed prometheus.Counter
	damaged                 prometheus.Counter
	through                 prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	return &Metrics{
		packs:   metric.Counter(registry, "substorm_compact_packs_total", "Packs of closed days written by this archivist."),
		members: metric.Counter(registry, "substorm_compact_members_total", "Objects in those packs."),
		removed: metric.Counter(registry, "substorm_compact_removed_total", "Objects and packs removed whose bytes lie elsewhere by now."),
		damaged: metric.Counter(registry, "substorm_compact_damaged_total", "Objects left where they are: what lies there is not what was received."),
		through: metric.Gauge(registry, "substorm_compact_through_timestamp_seconds", "The end of the last day that needs no more work."),
	}
}
