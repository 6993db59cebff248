// SPDX-License-Identifier: Apache-2.0

// Package metric makes metrics and registers them. A nil Registerer registers nothing.
package metric

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Counter makes a counter.
func Counter(reg prometheus.Registerer, name, help string) prometheus.Counter {
	return promauto.With(reg).NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// Counters makes a counter with labels.
func Counters(reg prometheus.Registerer, name, help string, labels ...string) *prometheus.CounterVec {
	return promauto.With(reg).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// Gauge makes a gauge.
func Gauge(reg prometheus.Registerer, name, help string) prometheus.Gauge {
	return promauto.With(reg).NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// Gauges makes a gauge with labels.
func Gauges(reg prometheus.Registerer, name, help string, labels ...string) *prometheus.GaugeVec {
	return promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

// GaugeFunc makes a gauge whose value a function returns.
func GaugeFunc(reg prometheus.Registerer, name, help string, value func() float64) {
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}
