// SPDX-License-Identifier: Apache-2.0

package index

import "github.com/prometheus/client_golang/prometheus"

// Metrics outlive the keepers of one process.
type Metrics struct {
	entries, roots, summaries, failures prometheus.Counter
	complete                            prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &Metrics{
		entries:   counter("substorm_index_entries_total", "Entries of the index written by this archivist."),
		roots:     counter("substorm_index_roots_total", "Roots written by this archivist."),
		summaries: counter("substorm_index_summaries_total", "Days whose manifests were read because the index did not know them."),
		failures:  counter("substorm_index_failures_total", "How often this archivist gave the index up for a while because something failed."),
		complete: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "substorm_index_complete", Help: "1 while this archivist keeps the index and it is complete."}),
	}
	registry.MustRegister(m.entries, m.roots, m.summaries, m.failures, m.complete)
	return m
}
