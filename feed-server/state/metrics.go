// SPDX-License-Identifier: Apache-2.0

package state

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/wire"
)

// These are the metrics of each consumer. Consumers are those that the registry declares and that
// connected here: labels have no other names.
var (
	ofConsumer  = []string{"consumer"}
	messages    = describe("messages_total", "Messages handed over.", ofConsumer...)
	bytes       = describe("bytes_total", "Bytes written to the consumer's connections; none where it pulls by NATS, mode All: nobody counts them.", ofConsumer...)
	dropped     = describe("dropped_total", "What the consumer was not given: datagrams and notices with Replaced and Sampled, messages with the reasons of gaps.", "consumer", "reason")
	gaps        = describe("gaps_total", "Gap records sent.", ofConsumer...)
	lagMessages = describe("lag_messages", "Messages that the connection furthest behind was not given yet.", ofConsumer...)
	lagBytes    = describe("lag_bytes", "Bytes of messages that the connection furthest behind was not given yet; none where nobody knows them.", ofConsumer...)
	lagSeconds  = describe("lag_seconds", "Age of the oldest message that the connection furthest behind was not given yet.", ofConsumer...)
	connections = describe("connections", "Connections that are open.", ofConsumer...)
	states      = describe("consumer_state", "1 for the state that the consumer is in: Flowing, Slow, Overrun, Idle.", "consumer", "state")
	revision    = describe("registry_revision", "Revision of the registry that this pod runs.")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("substorm_feed_"+name, help, labels, nil)
}

// Describe is prometheus.Collector's.
func (c *Consumers) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{messages, bytes, dropped, gaps, lagMessages, lagBytes, lagSeconds, connections, states, revision} {
		to <- d
	}
}

// Collect is prometheus.Collector's: lag and state are as they were measured last.
func (c *Consumers) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(revision, float64(c.cfg.Registry.Snapshot().Revision))
	for name, m := range c.snapshot() {
		m.mu.Lock()
		given, open := m.messages, len(m.readers)
		if m.by != nil {
			given, open = m.status.Messages, m.status.Connections
		}
		count(messages, given, name)
		if m.by == nil || m.status.Bytes != nil {
			count(bytes, m.bytes, name)
		}
		count(gaps, m.gaps, name)
		for reason, n := range m.dropped {
			count(dropped, n, name, reason)
		}
		gauge(connections, float64(open), name)
		s := m.status
		m.mu.Unlock()
		gauge(lagMessages, float64(s.LagMessages), name)
		if s.LagBytes != nil {
			gauge(lagBytes, float64(*s.LagBytes), name)
		}
		gauge(lagSeconds, float64(s.LagMillis)/1000, name)
		for _, state := range []string{wire.StateFlowing, wire.StateSlow, wire.StateOverrun, wire.StateIdle} {
			is := 0.0
			if s.State == state {
				is = 1
			}
			gauge(states, is, name, state)
		}
	}
}
