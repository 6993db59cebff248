// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/schedule"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/entries"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/observed"
	"github.com/substorm/substorm/operator/plan/workload"
)

// runPatience is how long after its time a scheduled run may begin before that is shown: the CronJob controller looks every few
// seconds.
const runPatience = 2 * time.Minute

// MirrorView is everything that a MirrorPartner's status is made from.
type MirrorView struct {
	Now    time.Time
	Mirror *v1alpha1.MirrorPartner
	// Site is nil where it does not exist.
	Site    *v1alpha1.Site
	Verdict accept.MirrorVerdict
	// Entry is the entry in the registry; nil if there is none.
	Entry   *wire.MirrorEntry
	Bus     observed.Bus
	Secrets workload.Secrets
	// SiteProgramView has the findings about a continuous mirror; its Pods are those of all runs.
	SiteProgramView
	CronJob *batchv1.CronJob
	Jobs    []batchv1.Job
	Reports []MirrorReport
}

// MirrorObjectNotOurs says that an object has a name that a MirrorPartner needs.
func MirrorObjectNotOurs(kind, name string) finding.Finding {
	return finding.Bad(v1alpha1.ReasonConflict, fmt.Sprintf(
		"a %s %q that is not this MirrorPartner's has a name that it needs: remove it, or make this MirrorPartner anew under another name", kind, name))
}

func (v MirrorView) suspended() bool { return v.Mirror.Spec.State == v1alpha1.MirrorSuspended }

// MirrorStatus returns the status, and after how long to look again.
func MirrorStatus(v MirrorView) (v1alpha1.MirrorPartnerStatus, time.Duration) {
	c := finding.Conditions{Now: v.Now, Generation: v.Mirror.Generation, Old: v.Mirror.Status.Conditions}
	c.Set(v1alpha1.ConditionAccepted, v.Verdict.Finding)
	if v.Verdict.Selected != (finding.Finding{}) {
		c.Set(v1alpha1.ConditionInstrumentsSelected, v.Verdict.Selected)
	}
	runs := v.runs()
	c.Set(v1alpha1.ConditionReachable, v.reachable())
	c.Set(v1alpha1.ConditionSynced, v.synced(runs))
	if v.Mirror.Spec.Direction == v1alpha1.MirrorPull && v.Mirror.Spec.HTTPS != nil && v.Mirror.Spec.HTTPS.Source == v1alpha1.MirrorSourceSubstorm {
		c.Set(v1alpha1.ConditionOriginConsistent, v.originConsistent())
		c.Set(v1alpha1.ConditionOriginWaits, v.originWaits())
	}
	patienceEnds := c.Finish(finding.First(v, mirrorReadiness, v.ready()))

	status := v1alpha1.MirrorPartnerStatus{ObservedGeneration: v.Mirror.Generation, Conditions: c.All, Runs: runs, Credentials: v.Credentials.Status()}
	v.times(&status)
	v.figures(&status)
	return status, finding.Soonest(patienceEnds, v.Credentials.RenewsIn(v.Now), v.nextLook(status.NextRunTime), observed.FiguresEvery)
}

// The order is that in which a person can put things right.
var mirrorReadiness = []finding.Check[MirrorView]{
	func(v MirrorView) (finding.Finding, bool) { return v.Verdict.Finding, !v.Verdict.OK() },
	func(v MirrorView) (finding.Finding, bool) {
		return v.Secrets.Missing(workload.MirrorSecrets(v.Site, v.Mirror))
	},
	func(v MirrorView) (finding.Finding, bool) { return v.refused() },
	mirrorIsNotInRegistry,
	mirrorIsNotRolledOut,
	mirrorHasNoCronJob,
	mirrorMissedItsRun,
}

func (v MirrorView) ready() finding.Finding {
	switch {
	case v.suspended():
		return finding.Good(v1alpha1.ReasonSuspended, "spec.state is Suspended: no run begins by itself; kubectl substorm mirror run "+v.Mirror.Name+" begins one")
	case v.Mirror.Spec.Continuous != nil:
		return finding.Good(v1alpha1.ReasonReady, "it follows what is announced")
	default:
		return finding.Good(v1alpha1.ReasonReady, "runs begin as spec.schedule says")
	}
}

func mirrorIsNotInRegistry(v MirrorView) (finding.Finding, bool) {
	return finding.Bad(v1alpha1.ReasonReconciling, fmt.Sprintf("the registry of Site %q does not have it yet", v.Site.Name)),
		v.Entry == nil || v.Entry.UID != string(v.Mirror.UID) || v.Entry.Generation < v.Mirror.Generation
}

func mirrorIsNotRolledOut(v MirrorView) (finding.Finding, bool) {
	if workload.MirrorRunsOn(v.Site, v.Mirror) != "Deployment" || v.suspended() {
		return finding.Finding{}, false
	}
	return programIsNotRolledOut("mirror of partner "+v.Mirror.Name, v.SiteProgramView, 1)
}

func mirrorHasNoCronJob(v MirrorView) (finding.Finding, bool) {
	return finding.Bad(v1alpha1.ReasonProgressing, fmt.Sprintf("CronJob %q is not there yet", workload.MirrorName(v.Mirror.Name))),
		v.CronJob == nil && workload.MirrorRunsOn(v.Site, v.Mirror) == "CronJob"
}

// mirrorMissedItsRun looks for a run that should have begun and did not, for example because the CronJob controller is away, or because the
// one before it lasted longer than spec.schedule.startingDeadline allows.
func mirrorMissedItsRun(v MirrorView) (finding.Finding, bool) {
	if v.CronJob == nil || v.suspended() || workload.MirrorRunsOn(v.Site, v.Mirror) != "CronJob" || len(v.CronJob.Status.Active) > 0 {
		return finding.Finding{}, false
	}
	s, err := schedule.Parse(v.Mirror.Spec.Schedule.Cron, string(v.Mirror.Spec.Schedule.TimeZone))
	if err != nil { // Accepted says so
		return finding.Finding{}, false
	}
	last := later(later(&v.CronJob.CreationTimestamp, v.CronJob.Status.LastScheduleTime), v.scheduledFrom())
	at, due, missed := s.Due(last.Time, v.Now.Add(-runPatience), time.Duration(entries.Millis(v.Mirror.Spec.Schedule.StartingDeadline))*time.Millisecond)
	switch {
	case missed:
		return finding.Bad(v1alpha1.ReasonMissed, fmt.Sprintf(
			"the run of %s did not begin within spec.schedule.startingDeadline: the next one moves what it would have; begin one with kubectl substorm mirror run %s",
			at.Format(time.RFC3339), v.Mirror.Name)), true
	case due:
		return finding.Bad(v1alpha1.ReasonMissed, fmt.Sprintf("the run of %s has not begun: see what kubectl describe cronjob %s says, and whether the cluster's controller manager runs",
			at.Format(time.RFC3339), workload.MirrorName(v.Mirror.Name))), true
	default:
		return finding.Finding{}, false
	}
}

// scheduledFrom is since when the schedule holds as it is declared now. A run that would have begun before was not missed: while the mirror
// was suspended, for example.
func (v MirrorView) scheduledFrom() *metav1.Time {
	was := &v.Mirror.Status
	switch {
	case v.Mirror.Spec.Schedule == nil || v.suspended():
		return nil
	case was.ObservedGeneration == v.Mirror.Generation && was.ScheduledFromTime != nil:
		return was.ScheduledFromTime
	default:
		return toSecond(v.Now)
	}
}

// latest is the report of the run that began last; nil for none.
func (v MirrorView) latest(wanted func(*MirrorReport) bool) *MirrorReport {
	var found *MirrorReport
	for i := range v.Reports {
		r := &v.Reports[i]
		if wanted(r) && (found == nil || r.StartedAt.After(found.StartedAt) || r.StartedAt.Equal(found.StartedAt) && r.Run > found.Run) {
			found = r
		}
	}
	return found
}

// reportOf is the report of a run; nil for none.
func (v MirrorView) reportOf(run string) *MirrorReport {
	return v.latest(func(r *MirrorReport) bool { return r.Run == run })
}

func anyReport(*MirrorReport) bool { return true }

// lastFinding is the earlier condition of this generation; otherwise if there is none.
func (v MirrorView) lastFinding(kind string, otherwise finding.Finding) finding.Finding {
	was := finding.Condition(v.Mirror.Status.Conditions, kind)
	if was == nil || was.ObservedGeneration < v.Mirror.Generation || len(v.Mirror.Status.Runs) == 0 || was.Reason == v1alpha1.ReasonNotRun {
		return otherwise
	}
	return finding.Of(v.Mirror.Status.Conditions, kind)
}

// outdated returns whether a run followed an earlier spec: its findings may not apply to this one, which may name another partner.
func (v MirrorView) outdated(r *MirrorReport) bool { return r.Generation < v.Mirror.Generation }

func (v MirrorView) reachable() finding.Finding {
	r := v.latest(anyReport)
	switch {
	case r == nil:
		return v.lastFinding(v1alpha1.ConditionReachable, finding.Unknown(v1alpha1.ReasonNotRun, "no run has reported yet"))
	case v.outdated(r):
		return finding.Unknown(v1alpha1.ReasonNotRun, fmt.Sprintf("run %q began before the spec was changed last, and none has reported since", r.Run))
	case r.silent(v.Now) && !v.suspended():
		return finding.Unknown(v1alpha1.ReasonNotReporting, fmt.Sprintf("run %q has not reported since %s", r.Run, r.Seen.UTC().Format(time.RFC3339)))
	case r.Unreached != nil:
		return finding.Bad(cmp.Or(reasonOf(r.Unreached.Reason), v1alpha1.ReasonUnreachable), fmt.Sprintf("since %s: %s", r.Unreached.Since.UTC().Format(time.RFC3339),
			cmp.Or(shortened(r.Unreached.Message, 1024), "the other side does not answer")))
	case !r.Reached.Before(r.StartedAt): // else it answered the comparison before
		return finding.Good(v1alpha1.ReasonReachable, "the other side answered run "+r.Run)
	case r.Result == wire.MirrorFailed:
		return v.lastFinding(v1alpha1.ConditionReachable, finding.Unknown(v1alpha1.ReasonNotRun, fmt.Sprintf("run %q failed before it knew whether the other side answers: %s", r.Run,
			cmp.Or(shortened(r.Message, 1024), "it did not say why"))))
	default:
		return v.lastFinding(v1alpha1.ConditionReachable, finding.Unknown(v1alpha1.ReasonNotRun, fmt.Sprintf("run %q has not tried yet", r.Run)))
	}
}

// reasonOf returns a reason in the form that conditions may have; empty for others, such as those of another version.
func reasonOf(text string) string {
	if len(text) > 63 {
		return ""
	}
	for i, r := range text {
		letter := r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return ""
		}
	}
	return text
}

// synced uses the last run that ended and that was not limited to a part. A manual run that failed without a report may have been limited.
func (v MirrorView) synced(runs []v1alpha1.MirrorRun) finding.Finding {
	r := v.latest((*MirrorReport).tellsAll)
	if r != nil && r.VerifyOnly && r.Result == wire.MirrorSucceeded { // it does not ask whether something has to go
		if moved := v.latest(func(r *MirrorReport) bool { return r.tellsAll() && !r.VerifyOnly }); moved != nil && moved.Reason == wire.MirrorReasonSafetyStop {
			r = moved
		}
	}
	for i := range runs { // one that failed without a word
		run := &runs[i]
		if run.Reason != v1alpha1.ReasonRunFailed || run.Result != v1alpha1.MirrorFailed || r != nil && !run.StartTime.After(r.StartedAt) {
			continue
		}
		if said := v.reportOf(run.Name); said != nil && !said.Part || said == nil && run.Trigger != v1alpha1.MirrorTriggerManual {
			return finding.Bad(v1alpha1.ReasonRunFailed, fmt.Sprintf("run %q: %s", run.Name, run.Message))
		}
	}
	switch {
	case r == nil:
		return v.lastFinding(v1alpha1.ConditionSynced, finding.Unknown(v1alpha1.ReasonNotRun, "no run has ended yet"))
	case v.outdated(r):
		return finding.Unknown(v1alpha1.ReasonNotRun, fmt.Sprintf("run %q began before the spec was changed last, and none has ended since: kubectl substorm mirror run %s begins one",
			r.Run, v.Mirror.Name))
	case r.Result == wire.MirrorFailed:
		return finding.Bad(cmp.Or(reasonOf(r.Reason), v1alpha1.ReasonRunFailed),
			fmt.Sprintf("run %q %s: %s", r.Run, owing(r.Owed), cmp.Or(shortened(r.Message, 2048), "it did not say why")))
	case r.Purges > 0:
		return finding.Bad(wire.MirrorReasonNotConfirmed, fmt.Sprintf("the partner has not confirmed %d purges: it may still have what was purged here", r.Purges))
	default:
		return finding.Good(v1alpha1.ReasonComplete, v.complete(r))
	}
}

// originConsistent reports whether the Site that is pulled from lists what it listed before, and has a clock that can be believed. A run
// that failed before it had listed all does not count, unless it found that the Site went back or that its clock is wrong.
func (v MirrorView) originConsistent() finding.Finding {
	r := v.latest(func(r *MirrorReport) bool {
		return r.WentBack != nil || r.OriginClock != "" || !r.EndedAt.IsZero() && r.Owed != nil
	})
	if r == nil {
		return v.lastFinding(v1alpha1.ConditionOriginConsistent, finding.Unknown(v1alpha1.ReasonNotRun, "no run has listed all yet"))
	}
	origin := v.Mirror.Spec.HTTPS.Origin
	clock := shortened(r.OriginClock, 1024)
	if r.WentBack == nil && clock != "" {
		return finding.Bad(v1alpha1.ReasonClockOff, clock)
	}
	if r.WentBack == nil {
		return finding.Good(v1alpha1.ReasonConsistent, fmt.Sprintf("Site %q lists what it listed before", origin))
	}
	w, signs := r.WentBack, []string(nil)
	if w.Objects > 0 {
		signs = append(signs, fmt.Sprintf("lists other bytes under the ID of %s, as %q of instrument %s", objectCount(w.Objects), w.Path, w.Instrument))
	}
	if w.Days > 0 {
		signs = append(signs, fmt.Sprintf("does not list %d days any more, as of instrument %s, of which objects are here", w.Days, w.Instrument))
	}
	if w.Unlisted > 0 {
		signs = append(signs, fmt.Sprintf("does not list %s any more that %s here, as of instrument %s, among the others of their days", objectCount(w.Unlisted),
			map[bool]string{true: "is", false: "are"}[w.Unlisted == 1], w.Instrument))
	}
	if w.Retracted > 0 {
		signs = append(signs, fmt.Sprintf("does not list %d retractions or purges any more, as of instrument %s, which stand here", w.Retracted, w.Instrument))
	}
	if clock != "" {
		clock = ". Also: " + clock
	}
	return finding.Bad(v1alpha1.ReasonWentBack, fmt.Sprintf("since %s Site %q %s: it was installed again under its code, or restored from an older backup. "+
		"What was pulled before stays here beside what is new. See what is missing there, and end this with kubectl substorm mirror run %s --force, which publishes nothing that was retracted%s",
		w.Since.Format(time.RFC3339), origin, strings.Join(signs, ", and "), v.Mirror.Name, clock))
}

// originWaits says whether the Site that is pulled from waits for this mirror before data expires there.
func (v MirrorView) originWaits() finding.Finding {
	r := v.latest(func(r *MirrorReport) bool {
		return !r.Part && (r.Unawaited != nil || !r.EndedAt.IsZero() && r.Owed != nil)
	})
	if r == nil {
		return v.lastFinding(v1alpha1.ConditionOriginWaits, finding.Unknown(v1alpha1.ReasonNotRun, "no run has listed all yet"))
	}
	origin, u := v.Mirror.Spec.HTTPS.Origin, r.Unawaited
	const lost = "what expires there before a run has pulled it does not come here"
	switch {
	case u == nil:
		return finding.Good(v1alpha1.ReasonAwaited, fmt.Sprintf("Site %q waits for what is confirmed here before data expires there", origin))
	case u.Old:
		return finding.Bad(v1alpha1.ReasonOriginTooOld, fmt.Sprintf("Site %q is of a version that waits for no mirror, so %s: "+
			"ask who runs it to update it, and to name the reader whose token is shown in spec.pulledBy of its Site",
			origin, lost))
	case u.Refused != "":
		return finding.Bad(v1alpha1.ReasonConfirmationRefused, fmt.Sprintf("Site %q does not take what is confirmed here, so %s: %s", origin, lost, shortened(u.Refused, 1024)))
	case u.Reader == "":
		return finding.Bad(v1alpha1.ReasonNotAwaited, fmt.Sprintf("Site %q does not know who pulls, so %s: "+
			"show the token of a reader there (spec.https.tokenSecretKeyRef), and have spec.pulledBy of its Site name that reader",
			origin, lost))
	case strings.Contains(u.Reader, ":"):
		return finding.Bad(v1alpha1.ReasonNotAwaited, fmt.Sprintf("Site %q waits for its readers alone, and %q is none, so %s: "+
			"show the token of a reader (spec.readersSecretRef of its Site), and have spec.pulledBy name that",
			origin, shortened(u.Reader, 128), lost))
	default:
		return finding.Bad(v1alpha1.ReasonNotAwaited, fmt.Sprintf("Site %q does not wait for its reader %q, so %s: write \"pulledBy: [{reader: %s}]\" into the spec of its Site",
			origin, shortened(u.Reader, 128), lost, shortened(u.Reader, 128)))
	}
}

// tellsAll says whether a run ended and looked at all that is selected.
func (r *MirrorReport) tellsAll() bool {
	return !r.Part && !r.EndedAt.IsZero() && (r.Result == wire.MirrorSucceeded || r.Result == wire.MirrorFailed)
}

func (v MirrorView) complete(r *MirrorReport) string {
	text := fmt.Sprintf("all that was selected when run %s began is at the other side", r.Run)
	if v.Mirror.Spec.Direction == v1alpha1.MirrorPull {
		text = fmt.Sprintf("all that was selected when run %s began is here", r.Run)
	}
	if r.Progress.Quarantined > 0 {
		text += fmt.Sprintf("; in quarantine, as no Instrument has their paths: %s; see spec.paths", objectCount(r.Progress.Quarantined))
	}
	if r.Progress.Empty > 0 {
		text += fmt.Sprintf("; files passed over because they are empty: %d", r.Progress.Empty)
	}
	if r.Progress.BadNames > 0 {
		text += fmt.Sprintf("; files and folders passed over because no object can have their names: %d; the log of the run names the first", r.Progress.BadNames)
	}
	return text
}

func objectCount(n int64) string {
	if n == 1 {
		return "1 object"
	}
	return fmt.Sprintf("%d objects", n)
}

// times are when runs began, ended, and begin next. Known times stay if reports are gone.
func (v MirrorView) times(status *v1alpha1.MirrorPartnerStatus) {
	was := &v.Mirror.Status
	status.LastRunTime, status.LastSuccessTime, status.VerifiedToTime = was.LastRunTime, was.LastSuccessTime, was.VerifiedToTime
	for i := range status.Runs {
		run := &status.Runs[i]
		status.LastRunTime = later(status.LastRunTime, &run.StartTime)
		if r := v.reportOf(run.Name); run.Result == v1alpha1.MirrorSucceeded && r != nil && !r.Part {
			status.LastSuccessTime = later(status.LastSuccessTime, run.EndTime)
		}
	}
	v.verified(status)
	status.ScheduledFromTime = v.scheduledFrom()
	if s := v.Mirror.Spec.Schedule; s != nil && v.Verdict.OK() && !v.suspended() {
		if times, err := schedule.Parse(s.Cron, string(s.TimeZone)); err == nil {
			status.NextRunTime = toSecond(times.Next(v.Now))
		}
	}
}

// verified is the time up to which everything is known to be at the other side, which a run of a part cannot know.
func (v MirrorView) verified(status *v1alpha1.MirrorPartnerStatus) {
	if r := v.latest(func(r *MirrorReport) bool { return !r.Part && !r.VerifiedTo.IsZero() }); r != nil {
		status.VerifiedToTime = toSecond(r.VerifiedTo)
	}
}

func later(a, b *metav1.Time) *metav1.Time {
	if a == nil || b != nil && b.After(a.Time) {
		return b
	}
	return a
}

// owing describes what a failed run owes.
func owing(owed *wire.MirrorOwed) string {
	if owed == nil {
		return "failed before it had looked at everything"
	}
	return "owes " + objectCount(owed.Objects)
}

// figures are the figures of the run that reported last. Only a run that has looked at everything knows what is owed, and which purges are
// not confirmed: until then these figures stay as they were.
func (v MirrorView) figures(status *v1alpha1.MirrorPartnerStatus) {
	was := &v.Mirror.Status
	status.Owed, status.Path, status.UnconfirmedPurgeCount = was.Owed, was.Path, was.UnconfirmedPurgeCount
	if r := v.latest(func(r *MirrorReport) bool { return !r.Part && r.Owed != nil }); r != nil {
		status.Owed = &v1alpha1.MirrorOwed{ObjectCount: r.Owed.Objects, Bytes: r.Owed.Bytes, OldestTime: toSecond(r.Owed.Oldest)}
		status.UnconfirmedPurgeCount = new(r.Purges)
	}
	if r := v.latest(func(r *MirrorReport) bool { return r.Path != nil }); r != nil {
		status.Path = mirrorPath(r.Path)
	}
	r := v.latest(anyReport)
	if r == nil || r.ended() || r.silent(v.Now) {
		return
	}
	p := &r.Progress
	status.Progress = &v1alpha1.MirrorProgress{Run: r.Run, ObjectCount: p.Objects, TotalObjectCount: p.TotalObjects, Bytes: p.Bytes, TotalBytes: p.TotalBytes,
		ComparedCount: p.Compared, BytesPerSecond: p.BytesPerSecond, EndTime: toSecond(r.ends())}
}

// MirrorFigures brings the figures of a status up to date that was written before the reports.
func MirrorFigures(m *v1alpha1.MirrorPartner, reports []MirrorReport, now time.Time) {
	v := MirrorView{Now: now, Mirror: m, Reports: reports}
	is := m.Status
	is.Progress = nil
	v.figures(&is)
	v.verified(&is)
	m.Status = is
}

func mirrorPath(p *wire.MirrorPathSeen) *v1alpha1.MirrorPathStatus {
	is := &v1alpha1.MirrorPathStatus{RoundTripMicroseconds: p.RoundTripMicros, ConnectionCount: int32(min(p.Connections, 1<<20))}
	if p.DeliveryBytesPerSecond > 0 {
		is.BytesPerSecond = new(p.DeliveryBytesPerSecond)
	}
	if p.BufferBytes > 0 {
		is.BufferBytes = new(p.BufferBytes)
	}
	return is
}

// nextLook is when the status changes by itself: a run should have begun, or a running one is silent.
func (v MirrorView) nextLook(next *metav1.Time) time.Duration {
	var waits []time.Duration
	if next != nil {
		waits = append(waits, next.Sub(v.Now)+time.Second, next.Sub(v.Now)+runPatience+time.Second)
	}
	for i := range v.Reports {
		if r := &v.Reports[i]; !r.ended() && !r.silent(v.Now) {
			waits = append(waits, r.Seen.Add(wire.MirrorReportGrace).Sub(v.Now)+time.Second)
		}
	}
	return finding.Soonest(waits...)
}
