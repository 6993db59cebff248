// SPDX-License-Identifier: Apache-2.0

package scrub

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/metric"
)

// Metrics outlive the scrubs of one process.
type Metrics struct {
	objects, bytes, unreadable, failures prometheus.Counter

	found         *prometheus.CounterVec
	known, passed prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	return &Metrics{
		objects:    metric.Counter(registry, "substorm_scrub_objects_total", "Objects that the scrub read and compared with their digests."),
		bytes:      metric.Counter(registry, "substorm_scrub_bytes_total", "Bytes of these objects."),
		unreadable: metric.Counter(registry, "substorm_scrub_unreadable_manifests_total", "Days that the scrub left out: a file of their manifest cannot be read."),
		failures:   metric.Counter(registry, "substorm_scrub_failures_total", "How often the scrub paused because something failed."),
		found:      metric.Counters(registry, "substorm_scrub_found_total", "Objects that were found to be damaged or missing in the store, by cause.", "cause"),
		known:      metric.Gauge(registry, "substorm_scrub_damaged_objects", "Objects that are known to be damaged or missing now."),
		passed:     metric.Gauge(registry, "substorm_scrub_passed_timestamp_seconds", "When the scrub last came to the end of the archive."),
	}
}
