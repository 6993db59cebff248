// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ofJob is a Job, whose pod runs once; one that has ended has none.
func ofJob(j *batchv1.Job) workload {
	w := workload{kind: "Job", meta: &j.ObjectMeta, replicas: 1, template: &j.Spec.Template, job: j}
	if jobEnded(j) != nil || j.Spec.Suspend != nil && *j.Spec.Suspend {
		w.replicas = 0
	}
	return w
}

// jobEnded is the condition that says how a Job ended; nil while it lasts.
func jobEnded(j *batchv1.Job) *batchv1.JobCondition {
	for i := range j.Status.Conditions {
		c := &j.Status.Conditions[i]
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			return c
		}
	}
	return nil
}

// reportJob writes the status of a Job, as a cluster's controller does.
func (p *Pods) reportJob(ctx context.Context, w workload, seen state) error {
	next := *w.job.Status.DeepCopy()
	if next.StartTime == nil {
		next.StartTime = new(at(time.Now()))
	}
	next.Active = 1
	if seen.ended {
		next.Active = 0
		ended := batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: at(time.Now()), LastProbeTime: at(time.Now())}
		if next.Succeeded = 1; seen.failed != "" {
			next.Succeeded, next.Failed = 0, 1
			ended.Type, ended.Reason, ended.Message = batchv1.JobFailed, "BackoffLimitExceeded", seen.failed
		} else {
			next.CompletionTime = new(at(time.Now()))
		}
		next.Conditions = []batchv1.JobCondition{ended}
	}
	if equality.Semantic.DeepEqual(w.job.Status, next) {
		return nil
	}
	w.job.Status = next
	return p.cfg.Client.Status().Update(ctx, w.job)
}

// expireJobs removes Jobs that ended longer ago than they are to be kept, and returns the others.
func (p *Pods) expireJobs(ctx context.Context, jobs []batchv1.Job, now time.Time) (stay []batchv1.Job, err error) {
	for i := range jobs {
		j := &jobs[i]
		ended := jobEnded(j)
		if ended == nil || j.Spec.TTLSecondsAfterFinished == nil || now.Sub(ended.LastTransitionTime.Time) < time.Duration(*j.Spec.TTLSecondsAfterFinished)*time.Second {
			stay = append(stay, *j)
			continue
		}
		uid := j.UID
		failed := p.cfg.Client.Delete(ctx, j, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(failed) != nil {
			err = fmt.Errorf("remove Job %s: %w", j.Name, failed)
		}
	}
	return stay, err
}
