// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// report writes what is seen of a workload's pod: into the Pod, and into the status of the workload. Amiss is why it cannot be
// started.
func (p *Pods) report(ctx context.Context, w workload, amiss error) error {
	running := p.of(w.podName())
	if running == nil && amiss == nil {
		if err := p.forget(ctx, w.podName()); err != nil {
			return err
		}
		if w.job != nil {
			return nil
		}
		return p.reportWorkload(ctx, w, 0, 0)
	}
	seen := state{since: time.Now()}
	if running != nil {
		seen = running.currentState()
	}
	if err := p.reportPod(ctx, w, seen, amiss); err != nil {
		return err
	}
	ready := int32(0)
	if seen.ready {
		ready = 1
	}
	if w.job != nil {
		return p.reportJob(ctx, w, seen)
	}
	return p.reportWorkload(ctx, w, 1, ready)
}

// forget removes the Pod of one that does not run any more.
func (p *Pods) forget(ctx context.Context, name types.NamespacedName) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	return client.IgnoreNotFound(p.cfg.Client.Delete(ctx, pod, client.GracePeriodSeconds(0)))
}

func (p *Pods) reportPod(ctx context.Context, w workload, seen state, amiss error) error {
	var current corev1.Pod
	err := p.cfg.Client.Get(ctx, w.podName(), &current)
	if apierrors.IsNotFound(err) {
		current = newPodObject(w)
		err = p.cfg.Client.Create(ctx, &current)
	}
	if err != nil {
		return err
	}
	status := p.podStatus(w, seen, amiss, current.CreationTimestamp)
	if equality.Semantic.DeepEqual(current.Status, status) {
		return nil
	}
	current.Status = status
	return p.cfg.Client.Status().Update(ctx, &current)
}

func newPodObject(w workload) corev1.Pod {
	group := appsv1.SchemeGroupVersion
	labels := w.template.Labels
	if w.job != nil {
		group, labels = batchv1.SchemeGroupVersion, maps.Clone(labels)
		if labels == nil {
			labels = map[string]string{}
		}
		labels[batchv1.JobNameLabel] = w.job.Name
	}
	owner := metav1.OwnerReference{APIVersion: group.String(), Kind: w.kind, Name: w.meta.Name, UID: w.meta.UID, Controller: new(true)}
	pod := corev1.Pod{Spec: *w.template.Spec.DeepCopy(), ObjectMeta: metav1.ObjectMeta{
		Namespace: w.podName().Namespace, Name: w.podName().Name, Labels: labels, Annotations: w.template.Annotations, OwnerReferences: []metav1.OwnerReference{owner}}}
	pod.Spec.NodeName = nodeName()
	for i := range w.claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: w.claims[i].Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: w.claims[i].Name + "-" + pod.Name}}})
	}
	return pod
}

// podStatus is what a kubelet would write.
func (p *Pods) podStatus(w workload, seen state, amiss error, created metav1.Time) corev1.PodStatus {
	c := corev1.ContainerStatus{Ready: seen.ready, RestartCount: seen.restarts, Started: new(!seen.started.IsZero())}
	if containers := w.template.Spec.Containers; len(containers) > 0 { // an API server refuses a pod without any, and ours does not
		c.Name, c.Image = containers[0].Name, containers[0].Image
	}
	phase := corev1.PodRunning
	switch {
	case amiss != nil && seen.started.IsZero():
		phase = corev1.PodPending
		c.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: amiss.Error()}
	case seen.started.IsZero():
		phase = corev1.PodPending
		c.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	case seen.ended && seen.failed == "":
		phase = corev1.PodSucceeded
		c.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: at(seen.started), FinishedAt: at(seen.since)}
	case seen.ended:
		phase = corev1.PodFailed
		c.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: seen.failed, StartedAt: at(seen.started), FinishedAt: at(seen.since)}
	case !seen.ready && seen.failed != "":
		c.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: seen.failed}
	default:
		c.State.Running = &corev1.ContainerStateRunning{StartedAt: at(seen.started)}
	}
	ready := corev1.ConditionFalse
	if seen.ready {
		ready = corev1.ConditionTrue
	}
	return corev1.PodStatus{
		Phase: phase, PodIP: Address, PodIPs: []corev1.PodIP{{IP: Address}}, HostIP: cmp.Or(p.cfg.Host, hostAddress()), StartTime: &created,
		ContainerStatuses: []corev1.ContainerStatus{c},
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: created},
			{Type: corev1.PodReady, Status: ready, LastTransitionTime: at(seen.since)},
			{Type: corev1.ContainersReady, Status: ready, LastTransitionTime: at(seen.since)},
		},
	}
}

// at is a time as it is read again: of whole seconds.
func at(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)).Rfc3339Copy() }

// reportWorkload writes the status of the workload. All its pods are of its newest revision.
func (p *Pods) reportWorkload(ctx context.Context, w workload, pods, ready int32) error {
	revision := fmt.Sprintf("%s-%d", w.meta.Name, w.meta.Generation)
	if w.set != nil {
		next := appsv1.StatefulSetStatus{ObservedGeneration: w.meta.Generation, Replicas: pods, ReadyReplicas: ready, AvailableReplicas: ready,
			CurrentReplicas: pods, UpdatedReplicas: pods, CurrentRevision: revision, UpdateRevision: revision}
		if equality.Semantic.DeepEqual(w.set.Status, next) {
			return nil
		}
		w.set.Status = next
		return p.cfg.Client.Status().Update(ctx, w.set)
	}
	next := appsv1.DeploymentStatus{ObservedGeneration: w.meta.Generation, Replicas: pods, UpdatedReplicas: pods, ReadyReplicas: ready, AvailableReplicas: ready}
	next.UnavailableReplicas = pods - ready
	if equality.Semantic.DeepEqual(w.deployment.Status, next) {
		return nil
	}
	w.deployment.Status = next
	return p.cfg.Client.Status().Update(ctx, w.deployment)
}
