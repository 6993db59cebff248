// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/operator/plan/finding"
)

// metrics shows what the operator knows about Sites and Instruments. Labels
// are namespace, site and instrument.
type metrics struct {
	links    *links
	statuses *statusWriter

	flowing      *prometheus.Desc
	lastReceived *prometheus.Desc
	connected    *prometheus.Desc
	revision     *prometheus.Desc
	reporting    *prometheus.Desc
	expiry       *prometheus.Desc
	unreadable   *prometheus.Desc
	known        *prometheus.Desc
	mirrors      *mirrorMetrics
}

func newMetrics(l *links, statuses *statusWriter) *metrics {
	site := []string{"namespace", "site"}
	instrument := []string{"namespace", "site", "instrument"}
	return &metrics{
		links: l, statuses: statuses, mirrors: newMirrorMetrics(),
		flowing: prometheus.NewDesc("substorm_instrument_data_flowing",
			"1 while data arrives in cadence, 0 while it doesn't; absent while nobody knows.", []string{"namespace", "site", "instrument", "reason"}, nil),
		lastReceived: prometheus.NewDesc("substorm_instrument_last_received_timestamp_seconds",
			"When data of the instrument last arrived, in seconds since 1970.", instrument, nil),
		connected: prometheus.NewDesc("substorm_site_reports_read",
			"1 while the operator reads what gateways report, 0 while JetStream is away.", site, nil),
		revision: prometheus.NewDesc("substorm_site_registry_revision",
			"Newest registry revision that gateways can read.", site, nil),
		reporting: prometheus.NewDesc("substorm_gateway_registry_revision",
			"Registry revision that a gateway pod last reported.", []string{"namespace", "site", "gateway"}, nil),
		expiry: prometheus.NewDesc("substorm_credentials_expiry_timestamp_seconds",
			"When the NATS credentials expire that the operator issued for the resource (of a Site: for its archivist), in seconds since 1970.",
			[]string{"namespace", "kind", "name"}, nil),
		unreadable: prometheus.NewDesc("substorm_site_object_unreadable",
			"1 for each object of the Site that the operator cannot decode.", []string{"namespace", "site", "kind", "name"}, nil),
		known: prometheus.NewDesc("substorm_operator_known_sites",
			"Sites of which the operator keeps something in memory: those that exist, and those that another resource names.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.flowing, m.lastReceived, m.connected, m.revision, m.reporting, m.expiry, m.unreadable, m.known} {
		ch <- d
	}
	m.mirrors.describe(ch)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, key := range m.links.keys() {
		f := m.links.facts(key)
		_, bus, registry, _ := f.snapshot()
		site := []string{key.Namespace, key.Name}
		gauge(ch, m.connected, truth(bus.Up), site...)
		gauge(ch, m.revision, float64(registry.Revision), site...)
		for _, r := range f.reports.ofGateways() {
			gauge(ch, m.reporting, float64(r.Revision), append(site, r.Gateway)...)
		}
		for _, o := range f.unreadableObjects() {
			gauge(ch, m.unreadable, 1, append(site, o.Kind, o.Name)...)
		}
		m.mirrors.collect(ch, f, site)
		flowing, _ := f.flowing()
		for name, found := range flowing {
			m.collectInstrument(ch, f, append(site, name), found)
		}
	}
	gauge(ch, m.known, float64(m.links.known()))
	for r, at := range m.statuses.credentialExpiries() {
		gauge(ch, m.expiry, float64(at.Unix()), r.Namespace, r.kind, r.Name)
	}
}

func (m *metrics) collectInstrument(ch chan<- prometheus.Metric, f *facts, labels []string, found finding.Finding) {
	if found.Status != "Unknown" {
		gauge(ch, m.flowing, truth(found.OK()), append(labels, found.Reason)...)
	}
	var last time.Time
	for _, r := range f.reports.ofInstrument(labels[len(labels)-1]) {
		if r.LastReceived.After(last) {
			last = r.LastReceived
		}
	}
	if !last.IsZero() {
		gauge(ch, m.lastReceived, float64(last.UnixMilli())/1000, labels...)
	}
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
