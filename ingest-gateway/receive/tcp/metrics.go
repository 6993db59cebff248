// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/metric"
)

type metrics struct {
	connections *prometheus.GaugeVec
	unexpected  *prometheus.CounterVec
	waits       *prometheus.CounterVec
	paced       *prometheus.CounterVec
	controls    *prometheus.CounterVec
	commands    *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) metrics {
	return metrics{
		connections: metric.Gauges(reg, "substorm_gateway_connections",
			"TCP connections that are open, by instrument; those that are turned away are not counted.", "instrument"),
		unexpected: metric.Counters(reg, "substorm_gateway_unexpected_objects_total",
			"Objects that do not meet tcp.expect of their instrument, by instrument; they are kept, as Unverified.", "instrument"),
		waits: metric.Counters(reg, "substorm_gateway_pipeline_waits_total",
			"Times that a connection was not read from because as many of its objects as may be were on their way, by instrument.", "instrument"),
		paced: metric.Counters(reg, "substorm_gateway_paced_total",
			"Times that a connection was not read from, for at most 50 ms, because of limits.bytesPerSecond, by instrument.", "instrument"),
		controls: metric.Counters(reg, "substorm_gateway_control_frames_total",
			"Control frames of senders, by instrument and type: heartbeat, or passed over as unknown or malformed.", "instrument", "type"),
		commands: metric.Counters(reg, "substorm_gateway_commands_total",
			"Commands that were written to senders, by instrument and type.", "instrument", "type"),
	}
}
