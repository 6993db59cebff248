// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

// mirrorMetrics come from the statuses of MirrorPartners that were planned last: statuses that are written are older.
type mirrorMetrics struct {
	reachable, synced, owedObjects, owedBytes, oldestOwed, verifiedTo, lastSuccess, nextRun, rate, purges *prometheus.Desc
}

func newMirrorMetrics() *mirrorMetrics {
	partner := []string{"namespace", "site", "partner"}
	reason := []string{"namespace", "site", "partner", "reason"}
	return &mirrorMetrics{
		reachable: prometheus.NewDesc("substorm_mirror_reachable",
			"1 while the other side of a MirrorPartner answers and lets us in, 0 while it does not; absent while nobody knows.", reason, nil),
		synced: prometheus.NewDesc("substorm_mirror_synced",
			"1 where the last run of a MirrorPartner moved and verified all that was selected, 0 where something is owed that it could not move; absent while nobody knows.", reason, nil),
		owedObjects: prometheus.NewDesc("substorm_mirror_owed_objects", "Objects that are selected and not at the other side.", partner, nil),
		owedBytes:   prometheus.NewDesc("substorm_mirror_owed_bytes", "Bytes of these objects.", partner, nil),
		oldestOwed: prometheus.NewDesc("substorm_mirror_oldest_owed_timestamp_seconds",
			"When the oldest of these objects was received, in seconds since 1970; absent where nothing is owed.", partner, nil),
		verifiedTo: prometheus.NewDesc("substorm_mirror_verified_to_timestamp_seconds",
			"All that is selected and was received before is known to be at the other side; in seconds since 1970.", partner, nil),
		lastSuccess: prometheus.NewDesc("substorm_mirror_last_success_timestamp_seconds",
			"When the last run ended that succeeded and was of no part, in seconds since 1970.", partner, nil),
		nextRun: prometheus.NewDesc("substorm_mirror_next_run_timestamp_seconds", "When the next scheduled run begins, in seconds since 1970.", partner, nil),
		rate:    prometheus.NewDesc("substorm_mirror_bytes_per_second", "Bytes a second that the run that lasts moves; absent while none does.", partner, nil),
		purges:  prometheus.NewDesc("substorm_mirror_unconfirmed_purges", "Purges that are asked of the partner and not confirmed.", partner, nil),
	}
}

func (m *mirrorMetrics) describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.reachable, m.synced, m.owedObjects, m.owedBytes, m.oldestOwed, m.verifiedTo, m.lastSuccess, m.nextRun, m.rate, m.purges} {
		ch <- d
	}
}

func (m *mirrorMetrics) collect(ch chan<- prometheus.Metric, f *facts, site []string) {
	for name, s := range f.mirrorStatuses() {
		labels := slices.Concat(site, []string{name})
		for d, kind := range map[*prometheus.Desc]string{m.reachable: v1alpha1.ConditionReachable, m.synced: v1alpha1.ConditionSynced} {
			if found := finding.Of(s.Conditions, kind); found.Reason != "" && found.Status != metav1.ConditionUnknown {
				gauge(ch, d, truth(found.OK()), slices.Concat(labels, []string{found.Reason})...)
			}
		}
		if s.Owed != nil {
			gauge(ch, m.owedObjects, float64(s.Owed.ObjectCount), labels...)
			gauge(ch, m.owedBytes, float64(s.Owed.Bytes), labels...)
			moment(ch, m.oldestOwed, s.Owed.OldestTime, labels)
		}
		moment(ch, m.verifiedTo, s.VerifiedToTime, labels)
		moment(ch, m.lastSuccess, s.LastSuccessTime, labels)
		moment(ch, m.nextRun, s.NextRunTime, labels)
		if s.Progress != nil {
			gauge(ch, m.rate, float64(s.Progress.BytesPerSecond), labels...)
		}
		if s.UnconfirmedPurgeCount != nil {
			gauge(ch, m.purges, float64(*s.UnconfirmedPurgeCount), labels...)
		}
	}
}

// moment emits a time; nothing if it is nil.
func moment(ch chan<- prometheus.Metric, d *prometheus.Desc, at *metav1.Time, labels []string) {
	if at != nil {
		gauge(ch, d, float64(at.UnixNano())/float64(time.Second), labels...)
	}
}
