// SPDX-License-Identifier: Apache-2.0

package tcp

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	connections *prometheus.GaugeVec
	unexpected  *prometheus.CounterVec
	waits       *prometheus.CounterVec
	paced       *prometheus.CounterVec
	controls    *prometheus.CounterVec
	commands    *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{
		connections: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "substorm_gateway_connections",
			Help: "TCP connections that are open, by instrument; those that are turned away are not counted.",
		}, []string{"instrument"}),
		unexpected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_gateway_unexpected_objects_total",
			Help: "Objects that do not meet tcp.expect of their instrument, by instrument; they are kept, as Unverified.",
		}, []string{"instrument"}),
		waits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_gateway_pipeline_waits_total",
			Help: "Times that a connection was not read from because as many of its objects as may be were on their way, by instrument.",
		}, []string{"instrument"}),
		paced: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_gateway_paced_total",
			Help: "Times that a connection was not read from, for at most 50 ms, because of limits.bytesPerSecond, by instrument.",
		}, []string{"instrument"}),
		controls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_gateway_control_frames_total",
			Help: "Control frames of senders, by instrument and type: heartbeat, or passed over as unknown or malformed.",
		}, []string{"instrument", "type"}),
		commands: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_gateway_commands_total",
			Help: "Commands that were written to senders, by instrument and type.",
		}, []string{"instrument", "type"}),
	}
	reg.MustRegister(m.connections, m.unexpected, m.waits, m.paced, m.controls, m.commands)
	return m
}
