// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/wire"
)

// Metrics outlive the cutters of one process.
type Metrics struct {
	segments prometheus.Counter
	bytes    prometheus.Counter
	grams    prometheus.Counter
	repeats  prometheus.Counter
	refused  *prometheus.CounterVec
	dropped  *prometheus.CounterVec
	waiting  prometheus.Gauge
	// undecodable by instrument.
	undecodable *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		segments: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_segments_total", Help: "Segments that this archivist stored."}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_segment_bytes_total", Help: "Bytes of those segments."}),
		grams: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_segment_datagrams_total", Help: "Datagrams in those segments."}),
		repeats: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_segment_repeated_messages_total",
			Help: "Telemetry messages that the stream held twice and a segment holds once."}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_segment_refused_requests_total",
			Help: "Times that JetStream refused a segment's notice, or its cursor or ledger, as when it is full; each is tried again."},
			[]string{"request"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_segment_datagrams_dropped_total",
			Help: "Announced datagrams that are in no segment, by cause, as in the ledger's stored column."}, []string{"cause"}),
		undecodable: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_segment_datagrams_undecodable_total",
			Help: "Datagrams in segments that are not as a channel of their instrument declares; they are kept all the same."}, []string{"instrument"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "substorm_segment_open_channels", Help: "Channels with telemetry that is not yet in a segment."}),
	}
	for _, cause := range []wire.Cause{wire.CauseUndecodable, wire.CauseStreamGone, wire.CauseMessageDeleted} {
		m.dropped.WithLabelValues(string(cause))
	}
	for _, request := range []string{requestNotice, requestCursor, requestLedger, requestMessages} {
		m.refused.WithLabelValues(request)
	}
	registry.MustRegister(m.segments, m.bytes, m.grams, m.repeats, m.refused, m.dropped, m.waiting, m.undecodable)
	return m
}

func (m *Metrics) lost(dropped map[wire.Cause]uint64) {
	for cause, n := range dropped {
		m.dropped.WithLabelValues(string(cause)).Add(float64(n))
	}
}

func (m *Metrics) cut(instrument string, b *built) {
	m.segments.Inc()
	m.bytes.Add(float64(b.size))
	m.grams.Add(float64(b.segment.Datagrams))
	m.repeats.Add(float64(b.repeats))
	if b.observer != nil && b.observer.Undecodable > 0 {
		m.undecodable.WithLabelValues(instrument).Add(float64(b.observer.Undecodable))
	}
}
