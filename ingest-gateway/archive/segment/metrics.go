// SPDX-License-Identifier: Apache-2.0

package segment

import "github.com/prometheus/client_golang/prometheus"

// Metrics outlive the cutters of one process.
type Metrics struct {
	segments prometheus.Counter
	bytes    prometheus.Counter
	grams    prometheus.Counter
	repeats  prometheus.Counter
	refused  prometheus.Counter
	dropped  *prometheus.CounterVec
	waiting  prometheus.Gauge
}

// Why telemetry is in no segment.
const (
	causeUndecodable = "Undecodable" // a message that nobody can read, counted once each
	causeStreamGone  = "StreamGone"  // a planned segment whose stream was deleted, counted once each
)

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		segments: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_segments_total", Help: "Segments that this gateway stored."}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_segment_bytes_total", Help: "Bytes of those segments."}),
		grams: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_segment_datagrams_total", Help: "Datagrams in those segments."}),
		repeats: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_segment_repeated_messages_total",
			Help: "Telemetry messages that the stream held twice and a segment holds once."}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_segment_refused_notices_total",
			Help: "Times that the notice stream refused to take a segment's notice, as when it is full; each is tried again."}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_segment_dropped_total", Help: "Telemetry that is in no segment, by cause."}, []string{"cause"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "substorm_segment_open_channels", Help: "Channels with telemetry that is not yet in a segment."}),
	}
	for _, cause := range []string{causeUndecodable, causeStreamGone} {
		m.dropped.WithLabelValues(cause)
	}
	registry.MustRegister(m.segments, m.bytes, m.grams, m.repeats, m.refused, m.dropped, m.waiting)
	return m
}

func (m *Metrics) cut(b *built) {
	m.segments.Inc()
	m.bytes.Add(float64(b.size))
	m.grams.Add(float64(b.segment.Datagrams))
	m.repeats.Add(float64(b.repeats))
}
