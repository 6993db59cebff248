// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/metric"
	"github.com/substorm/substorm/internal/wire"
)

// Metrics outlive the cutters of one process.
type Metrics struct {
	segments   prometheus.Counter
	bytes      prometheus.Counter
	grams      prometheus.Counter
	duplicates prometheus.Counter
	refused    *prometheus.CounterVec
	dropped    *prometheus.CounterVec
	waiting    prometheus.Gauge
	// undecodable by instrument.
	undecodable *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		segments:   metric.Counter(registry, "substorm_segments_total", "Segments that this archivist stored."),
		bytes:      metric.Counter(registry, "substorm_segment_bytes_total", "Bytes of those segments."),
		grams:      metric.Counter(registry, "substorm_segment_datagrams_total", "Datagrams in those segments."),
		duplicates: metric.Counter(registry, "substorm_segment_duplicate_messages_total", "Telemetry messages that the stream held twice and a segment holds once."),
		refused: metric.Counters(registry, "substorm_segment_refused_requests_total",
			"Times that JetStream refused a segment's notice, or its cursor or ledger, as when it is full; each is tried again.", "request"),
		dropped: metric.Counters(registry, "substorm_segment_datagrams_dropped_total",
			"Announced datagrams that are in no segment, by cause, as in the ledger's stored column.", "cause"),
		undecodable: metric.Counters(registry, "substorm_segment_datagrams_undecodable_total",
			"Datagrams in segments that are not as a channel of their instrument declares; they are kept all the same.", "instrument"),
		waiting: metric.Gauge(registry, "substorm_segment_open_channels", "Channels with telemetry that is not yet in a segment."),
	}
	for _, cause := range []wire.Cause{wire.CauseUndecodable, wire.CauseStreamGone, wire.CauseMessageDeleted} {
		m.dropped.WithLabelValues(string(cause))
	}
	for _, request := range []string{requestNotice, requestCursor, requestLedger, requestMessages} {
		m.refused.WithLabelValues(request)
	}
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
	m.duplicates.Add(float64(b.duplicates))
	if b.observer != nil && b.observer.Undecodable > 0 {
		m.undecodable.WithLabelValues(instrument).Add(float64(b.observer.Undecodable))
	}
}
