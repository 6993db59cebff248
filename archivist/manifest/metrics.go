// SPDX-License-Identifier: Apache-2.0

package manifest

import "github.com/prometheus/client_golang/prometheus"

// Metrics outlive the writers of one process.
type Metrics struct {
	parts      prometheus.Counter
	records    *prometheus.CounterVec
	backfill   *prometheus.CounterVec
	refused    prometheus.Counter
	closed     prometheus.Gauge
	indexed    prometheus.Gauge
	forgotten  prometheus.Counter
	identities prometheus.Gauge
	reread     prometheus.Counter
	found      *prometheus.CounterVec
	swept      prometheus.Gauge
	paths      *prometheus.CounterVec
	refilled   prometheus.Counter
	leftOut    prometheus.Counter

	changes, changesRefused *prometheus.CounterVec
}

// How paths of objects came to be.
const (
	pathOwn       = "Own"       // as the template says
	pathTold      = "Told"      // with a number: another object of the day has that of the template
	pathUnchecked = "Unchecked" // as the template says, whatever others have: there is no memory to know
)

// What the sweep finds.
const (
	findingUnannounced  = "Unannounced"  // stored, and in no manifest: announced
	findingWithdrawn    = "Withdrawn"    // a repeat that should be gone: removed
	findingPurged       = "Purged"       // what was purged is there again: handed on to be removed
	findingOther        = "Other"        // other bytes lie under the key of what was purged: left alone
	findingStaging      = "Staging"      // what a kill left: removed
	findingFailedPack   = "FailedPack"   // what its gateway could not store, as far as it knows: not announced
	findingUnreadable   = "Unreadable"   // no object of ours, or one of a newer Substorm: left alone
	findingOrphanRepeat = "OrphanRepeat" // a repeat whose original is gone: left alone
)

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		parts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_manifest_parts_total", Help: "Manifest parts closed by this archivist."}),
		records: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_manifest_records_total", Help: "Records in those parts; Withdrawn ones are repeats."}, []string{"state"}),
		backfill: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_manifest_backfill_records_total",
			Help: "Current records in those parts whose objects came later than cadence.lateAfter after they were observed."}, []string{"instrument"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_manifest_notices_refused_total", Help: "Notices that could not be understood."}),
		closed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "substorm_manifest_complete_timestamp_seconds", Help: "When the manifests last held all notices there were."}),
		indexed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "substorm_manifest_index_objects", Help: "Objects remembered to tell repeats."}),
		forgotten: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_manifest_index_forgotten_total",
			Help: "Objects within their repeat window that were forgotten because the index is full."}),
		identities: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "substorm_manifest_identities", Help: "Identities of listed objects held in memory."}),
		reread: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "substorm_manifest_rereads_total",
			Help: "Days read anew because a notice came for minutes whose identities were not held any more."}),
		found: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_sweep_found_total", Help: "What the sweep of the bucket found, by finding."}, []string{"finding"}),
		swept: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "substorm_sweep_complete_timestamp_seconds", Help: "When the bucket was last swept."}),
	}
	m.paths = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "substorm_manifest_paths_total", Help: "Paths under which objects are published; Told ones got a number because another object has the same."}, []string{"path"})
	m.refilled = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "substorm_notices_refilled_total", Help: "Notices announced anew because their stream was made anew."})
	m.leftOut = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "substorm_notices_refill_left_out_total", Help: "Notices that were not announced anew because the stream has no space for them."})
	m.changes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "substorm_archive_changes_total", Help: "Objects that were retracted, restored or purged because somebody asked, by change."}, []string{"change"})
	m.changesRefused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "substorm_archive_changes_refused_total", Help: "Objects that were not, though somebody asked, by reason."}, []string{"reason"})
	for _, change := range []string{changeRetracted, changeRestored, changePurged} {
		m.changes.WithLabelValues(change)
	}
	for _, reason := range []string{refusedUnlisted, refusedHold, refusedState, refusedNames, refusedForeign, refusedUnreadable} {
		m.changesRefused.WithLabelValues(reason)
	}
	for _, path := range []string{pathOwn, pathTold, pathUnchecked} {
		m.paths.WithLabelValues(path)
	}
	for _, finding := range []string{findingUnannounced, findingWithdrawn, findingPurged, findingOther, findingStaging, findingFailedPack, findingUnreadable, findingOrphanRepeat} {
		m.found.WithLabelValues(finding)
	}
	registry.MustRegister(m.parts, m.records, m.backfill, m.refused, m.closed, m.indexed, m.forgotten, m.identities, m.reread, m.found, m.swept,
		m.paths, m.refilled, m.leftOut, m.changes, m.changesRefused)
	return m
}
