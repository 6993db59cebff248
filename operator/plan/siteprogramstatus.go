// SPDX-License-Identifier: Apache-2.0

package plan

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

// SiteProgramView has the findings about a SiteProgram.
type SiteProgramView struct {
	// Failed is the API server's refusal, see ApplyFailed.
	Failed *finding.Finding
	// Deployment is nil if there is none.
	Deployment *appsv1.Deployment
	Pods       []corev1.Pod
	// Credentials are those of its user; nil if there are none of ours.
	Credentials *bus.Credentials
}

func (v SiteProgramView) refused() (finding.Finding, bool) {
	if v.Failed == nil {
		return finding.Finding{}, false
	}
	return *v.Failed, true
}

func (v SiteProgramView) replicas() int32 {
	if v.Deployment == nil {
		return 0
	}
	return v.Deployment.Status.Replicas
}

func (v SiteProgramView) readyReplicas() int32 {
	if v.Deployment == nil {
		return 0
	}
	return v.Deployment.Status.ReadyReplicas
}

// programIsNotRolledOut reports what the Deployment of a program still lacks; what is the plural of its pods.
func programIsNotRolledOut(what string, v SiteProgramView, asked int32) (finding.Finding, bool) {
	d := v.Deployment
	var lacks string
	switch {
	case d == nil:
		lacks = "the Deployment of the " + what + " is not there yet"
	case d.Status.ObservedGeneration < d.Generation || *workload.ReplicasOf(d.Spec.Replicas) != asked:
		lacks = "the Deployment of the " + what + " is being changed"
	case d.Status.ReadyReplicas < asked:
		lacks = finding.Count(d.Status.ReadyReplicas, asked) + " " + what + " are ready"
	case d.Status.UpdatedReplicas < asked:
		lacks = finding.Count(d.Status.UpdatedReplicas, asked) + " " + what + " run the newest revision"
	default:
		return finding.Finding{}, false
	}
	for _, problem := range []string{podsAreRefused(d), workload.PodProblem(v.Pods)} {
		if problem != "" {
			lacks += "; " + problem
		}
	}
	return finding.Bad(v1alpha1.ReasonProgressing, lacks), true
}

// podsAreRefused is the API server's message about pods of a Deployment that cannot be made, for example because of a missing PriorityClass
// or a quota, or "".
func podsAreRefused(d *appsv1.Deployment) string {
	if d == nil {
		return ""
	}
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// archivistAvailable says whether one archivist works and another waits.
func (v SiteView) archivistAvailable() finding.Finding {
	return finding.First(v, []finding.Check[SiteView]{
		func(v SiteView) (finding.Finding, bool) { return v.Secrets.Missing(workload.ArchivistSecrets(v.Site)) },
		func(v SiteView) (finding.Finding, bool) { return v.Archivist.refused() },
		func(v SiteView) (finding.Finding, bool) {
			return programIsNotRolledOut("archivists", v.Archivist, workload.ArchivistReplicas(v.Site))
		},
	}, finding.Good(v1alpha1.ReasonAvailable, finding.Count(workload.ArchivistReplicas(v.Site), workload.ArchivistReplicas(v.Site))+" archivists are ready"))
}

func (v SiteView) archivistState() *v1alpha1.ArchivistState {
	return &v1alpha1.ArchivistState{ReadyReplicas: v.Archivist.readyReplicas(), Credentials: v.Archivist.Credentials.Status()}
}
