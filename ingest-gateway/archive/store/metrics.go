// SPDX-License-Identifier: Apache-2.0

package store

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	objects, bytes, failures *prometheus.CounterVec
	seconds                  *prometheus.HistogramVec
	// unsafe are objects between their last byte and their receipt.
	unsafe prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{
		objects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_gateway_objects_total",
			Help: "Objects that are stored and announced, by instrument.",
		}, []string{"instrument"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_gateway_object_bytes_total",
			Help: "Bytes of the objects that are stored and announced, by instrument.",
		}, []string{"instrument"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_gateway_store_failures_total",
			Help: "Requests to the object store that failed and were, or will be, tried again.",
		}, []string{"operation"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "substorm_gateway_store_seconds",
			Help:    "Time until the object store acknowledged, tries and pauses included.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 14),
		}, []string{"operation"}),
	}
	m.unsafe = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "substorm_gateway_unsafe_objects",
		Help: "Objects that have arrived and wait for the object store or JetStream.",
	})
	reg.MustRegister(m.unsafe, m.objects, m.bytes, m.failures, m.seconds)
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
