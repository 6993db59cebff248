// SPDX-License-Identifier: Apache-2.0

package deletion

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/metric"
	"github.com/substorm/substorm/internal/wire"
)

// Metrics outlive the deleters of one process.
type Metrics struct{ deleted, kept *prometheus.CounterVec }

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		deleted: metric.Counters(registry, "substorm_archivist_deleted_objects_total", "Objects that this archivist deleted from the bucket, by reason.", "reason"),
		kept: metric.Counters(registry, "substorm_archivist_deletions_refused_total",
			"Objects that were to be deleted and must stay, by why; one is counted each time it is asked for.", "why"),
	}
	for _, reason := range wire.DeletionReasons {
		m.deleted.WithLabelValues(string(reason))
	}
	for _, why := range KeptReasons {
		m.kept.WithLabelValues(why)
	}
	return m
}
