// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/metric"
)

// Metrics outlive the collectors of one process.
type Metrics struct {
	waiting        *prometheus.GaugeVec
	objects, bytes *prometheus.CounterVec
	foreign        prometheus.Counter
	spared         prometheus.Counter
	clock, stopped prometheus.Gauge
	kept           *prometheus.CounterVec
}

// The values of the label "by": the causes of a removal.
const (
	byPurge  = "Purge"
	byExpiry = "Expiry"
	bySpace  = "DiskBudget"
)

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		waiting: metric.Gauges(registry, "substorm_archive_removals_waiting", "Removals that cannot be finished yet, by reason.", "reason"),
		objects: metric.Counters(registry, "substorm_archive_removed_objects_total", "Objects whose bytes this archivist removed for good.", "by"),
		bytes:   metric.Counters(registry, "substorm_archive_removed_bytes_total", "Bytes of those objects.", "by"),
		foreign: metric.Counter(registry, "substorm_archive_changes_unread_total", "Files among changes that could not be read as such where a day was to expire."),
		spared: metric.Counter(registry, "substorm_archive_removal_spared_total",
			"Objects that were kept although a removal names their key: they hold other bytes than what is to be removed."),
	}
	m.clock = metric.Gauge(registry, "substorm_archive_expiry_clocks_disagree",
		"1 while nothing expires because this archivist's clock and that of the NATS server do not agree.")
	m.stopped = metric.Gauge(registry, "substorm_archive_expiry_stopped_instruments",
		"Instruments of which nothing expires because more is due at once than spec.archive.expiry.maxShare allows.")
	m.kept = metric.Counters(registry, "substorm_archive_mirrored_days_kept_total",
		"Looks at days that stay although the disk budget is nearly used up and they may go where partners have them: "+
			"a partner lacks some (Lacking), or none has compared its copies in 7 days (NotCompared).", "reason")
	for _, reason := range []string{keptLacking, keptUncompared} {
		m.kept.WithLabelValues(reason)
	}
	for _, by := range []string{byPurge, byExpiry, bySpace} {
		m.objects.WithLabelValues(by)
		m.bytes.WithLabelValues(by)
	}
	for _, reason := range waitReasons {
		m.waiting.WithLabelValues(reason)
	}
	return m
}
