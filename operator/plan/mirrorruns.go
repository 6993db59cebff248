// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/workload"
)

// MaxMirrorRuns is how many runs a status has, and how many reports of runs that ended are kept.
const MaxMirrorRuns = 10

// MirrorReport is a run's report, and when it was seen by the operator's own clock.
type MirrorReport struct {
	wire.MirrorStatus
	Seen time.Time `json:"seen"`
}

// ended says whether the run is over, as it says itself. For a continuous run that means its last comparison: until the next one
// begins, it has nothing to report.
func (r *MirrorReport) ended() bool { return r.Result != wire.MirrorRunning }

// silent says whether a run that should report has not for too long.
func (r *MirrorReport) silent(now time.Time) bool {
	return !r.ended() && now.Sub(r.Seen) > wire.MirrorReportGrace
}

// farthestEnd is how far ahead an estimate of the end of a run is of use. For a run that makes almost no progress it would be centuries.
const farthestEnd = 365 * 24 * time.Hour

// ends is when the run ends, by its own clock and at its present rate; zero if that is not known.
func (r *MirrorReport) ends() time.Time {
	if ahead := r.Progress.Ends.Sub(r.ReportedAt); ahead < 0 || ahead > farthestEnd {
		return time.Time{}
	}
	return r.Progress.Ends
}

// MirrorReportProblem returns why a report cannot be one of a run; nil if it can.
func MirrorReportProblem(s wire.MirrorStatus) error {
	switch {
	case len(s.Run) > validation.DNS1123LabelMaxLength:
		return fmt.Errorf("its run has a name of %d characters, and a Job's name has at most %d", len(s.Run), validation.DNS1123LabelMaxLength)
	case s.StartedAt.IsZero():
		return errors.New("it does not say when the run began")
	default:
		return nil
	}
}

// MirrorReportsToForget are the keys' runs of reports that no status needs any more: of runs that ended, or went silent without a Job,
// all but the newest.
func MirrorReportsToForget(reports []MirrorReport, jobs []batchv1.Job, now time.Time) (runs []string) {
	over := slices.DeleteFunc(slices.Clone(reports), func(r MirrorReport) bool {
		return !r.ended() && (!r.silent(now) || jobNamed(jobs, r.Run) != nil || r.Trigger == wire.MirrorContinuously)
	})
	slices.SortFunc(over, func(a, b MirrorReport) int {
		return cmp.Or(b.StartedAt.Compare(a.StartedAt), cmp.Compare(b.Run, a.Run))
	})
	for _, r := range over[min(len(over), MaxMirrorRuns):] {
		runs = append(runs, r.Run)
	}
	return runs
}

// runs are the last ones, the newest first: those that reported, those whose Jobs have not, and those that were known before.
func (v MirrorView) runs() []v1alpha1.MirrorRun {
	known := map[string]bool{}
	var all []v1alpha1.MirrorRun
	for i := range v.Reports {
		all = append(all, v.reported(&v.Reports[i]))
		known[v.Reports[i].Run] = true
	}
	for i := range v.Jobs {
		if !known[v.Jobs[i].Name] {
			all = append(all, v.unreported(&v.Jobs[i]))
			known[v.Jobs[i].Name] = true
		}
	}
	for _, run := range v.Mirror.Status.Runs {
		if known[run.Name] {
			continue
		}
		if run.Result == v1alpha1.MirrorRunning && v.Bus.Up {
			run.Result, run.Reason, run.Message = v1alpha1.MirrorStopped, v1alpha1.ReasonRunFailed, "it ended without a report, and its Job is gone"
		}
		all = append(all, run)
	}
	slices.SortFunc(all, func(a, b v1alpha1.MirrorRun) int {
		return cmp.Or(b.StartTime.Compare(a.StartTime.Time), cmp.Compare(b.Name, a.Name))
	})
	return all[:min(len(all), MaxMirrorRuns)]
}

// reported is a run as it reported itself, with the end of its Job if it could not report its own.
func (v MirrorView) reported(r *MirrorReport) v1alpha1.MirrorRun {
	run := v1alpha1.MirrorRun{
		Name: r.Run, Trigger: triggerOf(r.Trigger), Result: v1alpha1.MirrorResult(r.Result), StartTime: *toSecond(r.StartedAt), EndTime: toSecond(r.EndedAt),
		ObjectCount: r.Progress.Objects, Bytes: r.Progress.Bytes, RemovedCount: r.Progress.Removed, FailedCount: r.Progress.Failed, QuarantinedCount: r.Progress.Quarantined,
		Reason: shortened(r.Reason, 63), Message: shortened(r.Message, 1024),
	}
	switch run.Result {
	case v1alpha1.MirrorRunning, v1alpha1.MirrorSucceeded, v1alpha1.MirrorFailed, v1alpha1.MirrorStopped:
	default: // a word of a newer version
		run.Result = v1alpha1.MirrorRunning
	}
	if run.Result != v1alpha1.MirrorRunning || r.Trigger == wire.MirrorContinuously {
		return run
	}
	switch job := jobNamed(v.Jobs, r.Run); {
	case job != nil && jobEnded(job) != nil:
		v.endAs(&run, job)
	case job == nil && r.silent(v.Now) && v.Bus.Up:
		run.Result, run.EndTime = v1alpha1.MirrorFailed, toSecond(r.ReportedAt)
		run.Reason, run.Message = v1alpha1.ReasonRunFailed, "it stopped reporting, and its Job is gone: the next run resumes it"
	}
	return run
}

// unreported is a run whose Job has said nothing yet.
func (v MirrorView) unreported(job *batchv1.Job) v1alpha1.MirrorRun {
	run := v1alpha1.MirrorRun{Name: shortened(job.Name, 63), Trigger: triggerOf(job.Labels[workload.LabelTrigger]), Result: v1alpha1.MirrorRunning,
		StartTime: *toSecond(job.CreationTimestamp.Time)}
	if jobEnded(job) != nil {
		v.endAs(&run, job)
		return run
	}
	run.Message = workload.PodProblem(v.podsOf(job.Name))
	return run
}

// endAs has a run end as its Job did, which it did not report.
func (v MirrorView) endAs(run *v1alpha1.MirrorRun, job *batchv1.Job) {
	ended := jobEnded(job)
	run.EndTime = toSecond(ended.LastTransitionTime.Time)
	if ended.Type == batchv1.JobComplete {
		run.Result = v1alpha1.MirrorSucceeded
		return
	}
	run.Result, run.Reason = v1alpha1.MirrorFailed, v1alpha1.ReasonRunFailed
	run.Message = shortened("its Job failed, and it did not report why: "+cmp.Or(workload.PodProblem(v.podsOf(job.Name)), ended.Message, ended.Reason, "see its log")+
		"; kubectl logs job/"+job.Name+" may tell more", 1024)
}

func (v MirrorView) podsOf(job string) []corev1.Pod {
	var pods []corev1.Pod
	for i := range v.Pods {
		if v.Pods[i].Labels[batchv1.JobNameLabel] == job {
			pods = append(pods, v.Pods[i])
		}
	}
	return pods
}

func jobNamed(jobs []batchv1.Job, name string) *batchv1.Job {
	for i := range jobs {
		if jobs[i].Name == name {
			return &jobs[i]
		}
	}
	return nil
}

// jobEnded is the condition that says how a Job ended; nil while it lasts.
func jobEnded(job *batchv1.Job) *batchv1.JobCondition {
	for i, c := range job.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}

func triggerOf(text string) v1alpha1.MirrorTrigger {
	switch text {
	case wire.MirrorManual:
		return v1alpha1.MirrorTriggerManual
	case wire.MirrorContinuously:
		return v1alpha1.MirrorTriggerContinuous
	default:
		return v1alpha1.MirrorTriggerScheduled
	}
}

// toSecond is a time as statuses have it; nil for none.
func toSecond(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.UTC().Truncate(time.Second)}
}

// shortened is a text of at most so many characters.
func shortened(text string, most int) string {
	if all := []rune(text); len(all) > most {
		return string(all[:most-1]) + "…"
	}
	return text
}
