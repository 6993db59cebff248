// SPDX-License-Identifier: Apache-2.0

package retention

import "github.com/prometheus/client_golang/prometheus"

// Metrics outlive the collectors of one process.
type Metrics struct {
	waiting        *prometheus.GaugeVec
	objects, bytes *prometheus.CounterVec
	foreign        prometheus.Counter
	spared         prometheus.Counter
	clock, stopped prometheus.Gauge
}

// What bytes are removed by.
const (
	byPurge  = "Purge"
	byExpiry = "Expiry"
)

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "substorm_archive_removals_waiting", Help: "Removals that cannot be finished yet, by reason."}, []string{"reason"}),
		objects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_archive_removed_objects_total", Help: "Objects whose bytes this archivist removed for good."}, []string{"by"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_archive_removed_bytes_total", Help: "Bytes of those objects."}, []string{"by"}),
		foreign: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_archive_changes_unread_total", Help: "Files among changes that could not be read as such where a day was to expire."}),
		spared: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_archive_removal_spared_total", Help: "Objects that were kept although a removal names their key: they hold other bytes than what is to be removed."}),
	}
	m.clock = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "substorm_archive_expiry_clocks_disagree", Help: "1 while nothing expires because this archivist's clock and that of the NATS server do not agree."})
	m.stopped = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "substorm_archive_expiry_stopped_instruments", Help: "Instruments of which nothing expires because more is due at once than spec.archive.retention.maxShare allows."})
	for _, by := range []string{byPurge, byExpiry} {
		m.objects.WithLabelValues(by)
		m.bytes.WithLabelValues(by)
	}
	for _, reason := range waitReasons {
		m.waiting.WithLabelValues(reason)
	}
	registry.MustRegister(m.waiting, m.objects, m.bytes, m.foreign, m.spared, m.clock, m.stopped)
	return m
}
