// SPDX-License-Identifier: Apache-2.0

package http

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	requests *prometheus.GaugeVec
	uploads  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{
		requests: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "substorm_gateway_http_requests",
			Help: "Requests over HTTP that are being received or stored, by instrument.",
		}, []string{"instrument"}),
		uploads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_gateway_uploads_total",
			Help: "Uploads by tus, by instrument and what became of them: created, finished, terminated.",
		}, []string{"instrument", "outcome"}),
	}
	reg.MustRegister(m.requests, m.uploads)
	return m
}
