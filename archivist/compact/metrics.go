// SPDX-License-Identifier: Apache-2.0

package compact

import "github.com/prometheus/client_golang/prometheus"

// Metrics outlive the compactors of one process.
type Metrics struct {
	packs, members, removed prometheus.Counter
	damaged                 prometheus.Counter
	through                 prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &Metrics{
		packs:   counter("substorm_compact_packs_total", "Packs of closed days written by this archivist."),
		members: counter("substorm_compact_members_total", "Objects in those packs."),
		removed: counter("substorm_compact_removed_total", "Objects and packs removed whose bytes lie elsewhere by now."),
		damaged: counter("substorm_compact_damaged_total", "Objects left where they are: what lies there is not what was received."),
		through: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "substorm_compact_through_timestamp_seconds", Help: "The end of the last day that needs no more work."}),
	}
	registry.MustRegister(m.packs, m.members, m.removed, m.damaged, m.through)
	return m
}
