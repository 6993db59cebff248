// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/metric"
)

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

	supersededForgotten prometheus.Counter

	changes, changesRefused *prometheus.CounterVec
}

// How paths of objects came to be.
const (
	pathOwn       = "Own"       // as the template says
	pathTold      = "Told"      // with a number: another object of the day has the template's path
	pathUnchecked = "Unchecked" // as the template says, whatever others have: there is no memory to know
)

// The findings of the sweep.
const (
	findingUnannounced     = "Unannounced"     // stored, and in no manifest: announced
	findingDuplicate       = "Duplicate"       // a duplicate that should be gone: removed
	findingPurged          = "Purged"          // what was purged is there again: handed on to be removed
	findingOther           = "Other"           // other bytes are under the key of a purged object: left alone
	findingStaging         = "Staging"         // what a kill left: removed
	findingFailedPack      = "FailedPack"      // what its gateway could not store, as far as it knows: not announced
	findingUnreadable      = "Unreadable"      // no object of ours, or one of a newer Substorm: left alone
	findingRetracted       = "Retracted"       // retracted, and in no manifest: left to a rebuild
	findingOrphanDuplicate = "OrphanDuplicate" // a duplicate whose original is gone: left alone
)

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		parts:   metric.Counter(registry, "substorm_manifest_parts_total", "Manifest parts closed by this archivist."),
		records: metric.Counters(registry, "substorm_manifest_records_total", "Records in those parts, by state.", "state"),
		backfill: metric.Counters(registry, "substorm_manifest_backfill_records_total",
			"Current records in those parts whose objects came later than cadence.lateAfter after they were observed.", "instrument"),
		refused: metric.Counter(registry, "substorm_manifest_notices_refused_total", "Notices that could not be understood."),
		closed:  metric.Gauge(registry, "substorm_manifest_complete_timestamp_seconds", "When the manifests last held all notices there were."),
		indexed: metric.Gauge(registry, "substorm_manifest_index_objects", "Objects remembered to tell duplicates."),
		forgotten: metric.Counter(registry, "substorm_manifest_index_forgotten_total",
			"Objects within their repeat window that were forgotten because the index is full."),
		identities: metric.Gauge(registry, "substorm_manifest_identities", "Identities of listed objects held in memory."),
		reread: metric.Counter(registry, "substorm_manifest_rereads_total",
			"Days read anew because a notice came for minutes whose identities were not held any more."),
		found: metric.Counters(registry, "substorm_sweep_found_total", "What the sweep of the bucket found, by finding.", "finding"),
		swept: metric.Gauge(registry, "substorm_sweep_complete_timestamp_seconds", "When the bucket was last swept."),
	}
	m.paths = metric.Counters(registry, "substorm_manifest_paths_total",
		"Paths under which objects are published; Told ones got a number because another object has the same.", "path")
	m.refilled = metric.Counter(registry, "substorm_notices_refilled_total", "Notices announced anew because their stream was made anew.")
	m.leftOut = metric.Counter(registry, "substorm_notices_refill_left_out_total", "Notices that were not announced anew because the stream has no space for them.")
	m.supersededForgotten = metric.Counter(registry, "substorm_manifest_superseded_forgotten_total",
		"Older versions that came after a newer one and are listed as current, because too many others were remembered.")
	m.changes = metric.Counters(registry, "substorm_archive_changes_total",
		"Objects that were retracted, restored, purged or (of other Sites, as their versions are) superseded because somebody asked, by change.", "change")
	m.changesRefused = metric.Counters(registry, "substorm_archive_changes_refused_total", "Objects that were not, though somebody asked, by reason.", "reason")
	for _, change := range []string{changeRetracted, changeRestored, changePurged} {
		m.changes.WithLabelValues(change)
	}
	for _, reason := range []string{refusedUnlisted, refusedHold, refusedState, refusedNames, refusedForeign, refusedUnreadable} {
		m.changesRefused.WithLabelValues(reason)
	}
	for _, path := range []string{pathOwn, pathTold, pathUnchecked} {
		m.paths.WithLabelValues(path)
	}
	for _, finding := range []string{findingUnannounced, findingDuplicate, findingPurged, findingOther, findingStaging, findingFailedPack, findingUnreadable,
		findingRetracted, findingOrphanDuplicate} {
		m.found.WithLabelValues(finding)
	}
	return m
}
