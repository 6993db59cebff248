// SPDX-License-Identifier: Apache-2.0

package store

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/ingest-gateway/spool"
	"github.com/substorm/substorm/internal/metric"
)

type metrics struct {
	objects, bytes, failures *prometheus.CounterVec
	seconds                  *prometheus.HistogramVec
	// unsafe are objects between their last byte and their receipt.
	unsafe prometheus.Gauge
	// spooled are objects and bytes that were receipted into the spool.
	spooled, spooledBytes *prometheus.CounterVec
	packs, packed         prometheus.Counter
	// duplicates are objects whose bytes were there under their name; conflicts those
	// from the spool whose name others have; restored those that the store had lost.
	duplicates, conflicts, restored *prometheus.CounterVec
	// unknownTimes are objects whose name has no time of observation, or an impossible one, though
	// the Instrument says that names have it.
	unknownTimes *prometheus.CounterVec
	// unexpected are objects that are not of the media type that is declared.
	unexpected *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{
		objects: metric.Counters(reg, "substorm_gateway_objects_total", "Objects that are stored and announced, by instrument.", "instrument"),
		bytes: metric.Counters(reg, "substorm_gateway_object_bytes_total",
			"Bytes of the objects that are stored and announced, by instrument.", "instrument"),
		failures: metric.Counters(reg, "substorm_gateway_store_failures_total",
			"Requests to the object store that failed and were, or will be, tried again.", "operation"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "substorm_gateway_store_seconds",
			Help:    "Time until the object store acknowledged, tries and pauses included.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 14),
		}, []string{"operation"}),
	}
	m.unsafe = metric.Gauge(reg, "substorm_gateway_unsafe_objects", "Objects that have arrived and wait for the object store or JetStream.")
	m.spooled = metric.Counters(reg, "substorm_gateway_spooled_total",
		"Objects that went to the spool before they were stored or announced, by instrument.", "instrument")
	m.spooledBytes = metric.Counters(reg, "substorm_gateway_spooled_bytes_total",
		"Bytes of objects that went to the spool, by instrument.", "instrument")
	m.packs = metric.Counter(reg, "substorm_gateway_packs_total", "Packs of small objects that were stored.")
	m.packed = metric.Counter(reg, "substorm_gateway_packed_total", "Objects in those packs.")
	m.duplicates = metric.Counters(reg, "substorm_gateway_duplicates_total",
		"Objects whose bytes were there under their name already, by instrument: receipted, and not kept once more.", "instrument")
	m.conflicts = metric.Counters(reg, "substorm_gateway_name_conflicts_total",
		"Objects that were receipted into the spool while JetStream was away and found their name taken, by instrument: they are kept as the next version.", "instrument")
	m.restored = metric.Counters(reg, "substorm_gateway_restored_total",
		"Objects that were announced, that the store had lost, and that were stored again from the bytes of a duplicate, by instrument.", "instrument")
	m.unknownTimes = metric.Counters(reg, "substorm_gateway_unknown_observation_times_total",
		"Objects that are received without an observation time, by instrument: without a name, or with one that does not fit the template of spec.observationTime, "+
			"or that tells a time more than 366 days before or 24 hours after the receipt.", "instrument")
	m.unexpected = metric.Counters(reg, "substorm_gateway_unexpected_content_total",
		"Objects whose first bytes contradict the media type that their sender or spec.archive.mediaType declares, by instrument: they are kept, and marked.", "instrument")
	reg.MustRegister(m.seconds)
	return m
}

func (m *metrics) stored(operation string, d time.Duration) {
	m.seconds.WithLabelValues(operation).Observe(d.Seconds())
}

func (m *metrics) failed(operation string) { m.failures.WithLabelValues(operation).Inc() }

func (m *metrics) received(instrument string, size int64) {
	m.objects.WithLabelValues(instrument).Inc()
	m.bytes.WithLabelValues(instrument).Add(float64(size))
}

func registerSpool(reg prometheus.Registerer, s *spool.Spool) {
	gauge := func(name, help string, value func(spool.Stats) float64) {
		metric.GaugeFunc(reg, name, help, func() float64 { return value(s.Stats()) })
	}
	gauge("substorm_gateway_spool_objects", "Objects that are receipted and wait in the spool.",
		func(s spool.Stats) float64 { return float64(s.Objects) })
	gauge("substorm_gateway_spool_bytes", "Bytes of objects that wait in the spool.",
		func(s spool.Stats) float64 { return float64(s.Bytes) })
	gauge("substorm_gateway_spool_oldest_seconds", "Age of the oldest object that waits in the spool; 0 where none does.",
		func(s spool.Stats) float64 {
			if s.Oldest.IsZero() {
				return 0
			}
			return max(time.Since(s.Oldest).Seconds(), 0)
		})
	gauge("substorm_gateway_spool_size_bytes", "Bytes on the volume that the spool may take.",
		func(s spool.Stats) float64 { return float64(s.Size) })
	gauge("substorm_gateway_spool_used_bytes", "Bytes on the volume that the spool takes.",
		func(s spool.Stats) float64 { return float64(s.Used) })
	gauge("substorm_gateway_spool_quarantined", "Files in the spool's quarantine: corrupt records, or runs of bytes.",
		func(s spool.Stats) float64 { return float64(s.Quarantined) })
	gauge("substorm_gateway_spool_cut_bytes", "Bytes cut off the spool's end at the start: a record that was not written to its end, and never receipted.",
		func(s spool.Stats) float64 { return float64(s.Cut) })
}
