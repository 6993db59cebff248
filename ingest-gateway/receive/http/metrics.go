// SPDX-License-Identifier: Apache-2.0

package http

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	requests *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{
		requests: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "substorm_gateway_http_requests",
			Help: "Requests over HTTP that are being received or stored, by instrument.",
		}, []string{"instrument"}),
	}
	reg.MustRegister(m.requests)
	return m
}
