// SPDX-License-Identifier: Apache-2.0

package scrub

import "github.com/prometheus/client_golang/prometheus"

// Metrics outlive the scrubs of one process.
type Metrics struct {
	objects, bytes, unreadable, failures prometheus.Counter

	found         *prometheus.CounterVec
	known, passed prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &Metrics{
		objects:    counter("substorm_scrub_objects_total", "Objects that the scrub read and compared with their digests."),
		bytes:      counter("substorm_scrub_bytes_total", "Bytes of these objects."),
		unreadable: counter("substorm_scrub_unreadable_manifests_total", "Days that the scrub left out: a file of their manifest cannot be read."),
		failures:   counter("substorm_scrub_failures_total", "How often the scrub paused because something failed."),
		found: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_scrub_found_total", Help: "Objects that were found to be damaged or missing in the store, by cause."}, []string{"cause"}),
		known:  gauge("substorm_scrub_damaged_objects", "Objects that are known to be damaged or missing now."),
		passed: gauge("substorm_scrub_passed_timestamp_seconds", "When the scrub last came to the end of the archive."),
	}
	registry.MustRegister(m.objects, m.bytes, m.unreadable, m.failures, m.found, m.known, m.passed)
	return m
}
