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
	"github.com/substorm/substorm/archivist/index"
	"github.com/substorm/substorm/archivist/manifest"
	"github.com/substorm/substorm/archivist/names"
	"github.com/substorm/substorm/archivist/retention"
	"github.com/substorm/substorm/archivist/scrub"
	"github.com/substorm/substorm/archivist/segment"
)

type metrics struct {
	manifest *manifest.Metrics
	segment  *segment.Metrics
	forward  *forward.Metrics
	compact  *compact.Metrics
	closing  *dayclose.Metrics
	gaps     *gaps.Metrics
	index    *index.Metrics
	scrub    *scrub.Metrics
	keeping  *retention.Metrics
	metadata *descriptions.Metrics
	names    *names.Metrics
	deletion *deletion.Metrics
	held     prometheus.Gauge
	failures prometheus.Counter
	lag      *prometheus.GaugeVec
	trimmed  *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		manifest: manifest.NewMetrics(registry),
		segment:  segment.NewMetrics(registry),
		forward:  forward.NewMetrics(registry),
		compact:  compact.NewMetrics(registry),
		closing:  dayclose.NewMetrics(registry),
		gaps:     gaps.NewMetrics(registry),
		index:    index.NewMetrics(registry),
		scrub:    scrub.NewMetrics(registry),
		keeping:  retention.NewMetrics(registry),
		metadata: descriptions.NewMetrics(registry),
		names:    names.NewMetrics(registry),
		deletion: deletion.NewMetrics(registry),
		held: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "substorm_archivist_lease_held", Help: "1 while this archivist holds the lease."}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_archivist_failures_total", Help: "How often this archivist gave up the lease because something failed."}),
		lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "substorm_archivist_lag_messages", Help: "Messages of a stream that are not archived yet."}, []string{"stream"}),
		trimmed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_archivist_trimmed_messages_total", Help: "Archived messages removed from a stream."}, []string{"stream"}),
	}
	registry.MustRegister(m.held, m.failures, m.lag, m.trimmed)
	return m
}
