// SPDX-License-Identifier: Apache-2.0

package http

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/metric"
)

type metrics struct {
	requests            *prometheus.GaugeVec
	uploads, challenged *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) metrics {
	return metrics{
		requests: metric.Gauges(reg, "substorm_gateway_http_requests",
			"Requests over HTTP that are being received or stored, by instrument.", "instrument"),
		uploads: metric.Counters(reg, "substorm_gateway_uploads_total",
			"Uploads by tus, by instrument and what became of them: created, finished, terminated.", "instrument", "outcome"),
		challenged: metric.Counters(reg, "substorm_gateway_challenged_total",
			"Requests over HTTP that showed no token and were asked for one, by instrument: nothing of them was taken, and they are no failed attempts.", "instrument"),
	}
}
