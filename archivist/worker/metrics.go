// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/archivist/compact"
	"github.com/substorm/substorm/archivist/dayclose"
	"github.com/substorm/substorm/archivist/deletion"
	"github.com/substorm/substorm/archivist/descriptions"
	"github.com/substorm/substorm/archivist/forward"
	"github.com/substorm/substorm/archivist/gaps"
	"github.com/substorm/substorm/archivist/guests"
	"github.com/substorm/substorm/archivist/index"
	"github.com/substorm/substorm/archivist/manifest"
	"github.com/substorm/substorm/archivist/names"
	"github.com/substorm/substorm/archivist/retention"
	"github.com/substorm/substorm/archivist/scrub"
	"github.com/substorm/substorm/archivist/segment"
	"github.com/substorm/substorm/internal/metric"
)

// Why messages are trimmed.
const (
	trimmedByAge   = "Retention"
	trimmedAsFull  = "StreamFull"
	trimmedForDisk = "DiskBudget"
)

type metrics struct {
	manifest     *manifest.Metrics
	segment      *segment.Metrics
	forward      *forward.Metrics
	compact      *compact.Metrics
	closing      *dayclose.Metrics
	gaps         *gaps.Metrics
	index        *index.Metrics
	scrub        *scrub.Metrics
	keeping      *retention.Metrics
	descriptions *descriptions.Metrics
	guests       *guests.Metrics
	names        *names.Metrics
	deletion     *deletion.Metrics
	held         prometheus.Gauge
	failures     prometheus.Counter
	lag          *prometheus.GaugeVec
	trimmed      *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	return &metrics{
		manifest:     manifest.NewMetrics(registry),
		segment:      segment.NewMetrics(registry),
		forward:      forward.NewMetrics(registry),
		compact:      compact.NewMetrics(registry),
		closing:      dayclose.NewMetrics(registry),
		gaps:         gaps.NewMetrics(registry),
		index:        index.NewMetrics(registry),
		scrub:        scrub.NewMetrics(registry),
		keeping:      retention.NewMetrics(registry),
		descriptions: descriptions.NewMetrics(registry),
		guests:       guests.NewMetrics(registry),
		names:        names.NewMetrics(registry),
		deletion:     deletion.NewMetrics(registry),
		held:         metric.Gauge(registry, "substorm_archivist_lease_held", "1 while this archivist holds the lease."),
		failures:     metric.Counter(registry, "substorm_archivist_failures_total", "How often this archivist gave up the lease because something failed."),
		lag:          metric.Gauges(registry, "substorm_archivist_lag_messages", "Messages of a stream that are not archived yet.", "stream"),
		trimmed: metric.Counters(registry, "substorm_archivist_trimmed_messages_total",
			"Archived messages removed from a stream, by why: Retention is over, the stream was nearly full (StreamFull), or the disk budget nearly used up (DiskBudget).",
			"stream", "reason"),
	}
}
