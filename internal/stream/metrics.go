// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of one committer.
type metrics struct {
	messages       *prometheus.CounterVec
	seconds        prometheus.Histogram
	batches        prometheus.Counter
	batchesRefused prometheus.Counter
	up             prometheus.Gauge
	all            []prometheus.Collector
}

func newMetrics(reg prometheus.Registerer, stream string, backlog func() (int, int64)) *metrics {
	labels := prometheus.Labels{"stream": stream}
	m := &metrics{
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_stream_messages_total", ConstLabels: labels,
			Help: "Messages by what became of them: Acknowledged, Unavailable, Full or Refused.",
		}, []string{"outcome"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "substorm_stream_commit_seconds", ConstLabels: labels,
			Help:    "Time until the stream acknowledged a message, waiting, tries and pauses included.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
		batches: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_stream_batches_total", ConstLabels: labels,
			Help: "Atomic batches that the stream took.",
		}),
		batchesRefused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_stream_batches_refused_total", ConstLabels: labels,
			Help: "Atomic batches that were refused and sent again message by message.",
		}),
		up: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "substorm_stream_available", ConstLabels: labels,
			Help: "1 while the stream answers, 0 while messages are tried again.",
		}),
	}
	m.up.Set(1)
	m.all = []prometheus.Collector{
		m.messages, m.seconds, m.batches, m.batchesRefused, m.up,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "substorm_stream_backlog_messages", ConstLabels: labels,
			Help: "Messages that are queued or on their way.",
		}, func() float64 { n, _ := backlog(); return float64(n) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "substorm_stream_backlog_bytes", ConstLabels: labels,
			Help: "Bytes of the messages that are queued or on their way.",
		}, func() float64 { _, n := backlog(); return float64(n) }),
	}
	if reg != nil {
		for _, c := range m.all {
			reg.MustRegister(c)
		}
	}
	return m
}

func (m *metrics) unregister(reg prometheus.Registerer) {
	if reg != nil {
		for _, c := range m.all {
			reg.Unregister(c)
		}
	}
}

func (m *metrics) settled(err error, after time.Duration) {
	outcome := "Acknowledged"
	switch {
	case err == nil:
		m.seconds.Observe(after.Seconds())
	case errors.Is(err, ErrFull):
		outcome = "Full"
	case errors.Is(err, ErrRefused):
		outcome = "Refused"
	default:
		outcome = "Unavailable"
	}
	m.messages.WithLabelValues(outcome).Inc()
}
