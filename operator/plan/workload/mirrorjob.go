// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// manualRunKept is how long the Job of a run that a person began is kept after its end, with its log, in seconds.
const manualRunKept = 7 * 24 * 3600

// ManualRun is a person's request for a run of its own.
type ManualRun struct {
	// From and To bound the time of observation within the MirrorPartner's selection: [From, To). Zero: no bound.
	From, To time.Time
	// VerifyOnly compares and moves nothing.
	VerifyOnly bool
	// Force lets the run remove more than spec.safetyStopPercent, and move existing objects again if they differ.
	Force bool
}

// Problem returns why a run cannot be requested; nil if it can.
func (r ManualRun) Problem() error {
	switch {
	case r.VerifyOnly && r.Force:
		return errors.New("a run that only verifies moves nothing, and forces nothing: choose --verify-only or --force")
	case !r.From.IsZero() && !r.To.IsZero() && !r.From.Before(r.To):
		return fmt.Errorf("the run would begin at %s and end before it, at %s: --observed is A..B", r.From.Format(time.RFC3339), r.To.Format(time.RFC3339))
	}
	return nil
}

// ManualMirrorJob is the Job of a run that a person requests. Template is the template of the CronJob or the Deployment of the mirror. The
// Job is beside those, and delays neither.
func ManualMirrorJob(m *v1alpha1.MirrorPartner, template *corev1.PodTemplateSpec, r ManualRun) (*batchv1.Job, error) {
	if err := r.Problem(); err != nil {
		return nil, err
	}
	t := template.DeepCopy()
	t.Spec.RestartPolicy = corev1.RestartPolicyNever
	if t.Labels == nil {
		t.Labels = map[string]string{}
	}
	t.Labels[LabelTrigger] = wire.MirrorManual
	i := slices.IndexFunc(t.Spec.Containers, func(c corev1.Container) bool { return c.Name == MirrorProgram })
	if i < 0 {
		return nil, fmt.Errorf("the pods of MirrorPartner %q have no container %s: is its operator of this version?", m.Name, MirrorProgram)
	}
	c := &t.Spec.Containers[i]
	c.Args = append(slices.DeleteFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, triggerFlag) }), r.arguments()...)
	c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == envRun })
	c.Env = append(c.Env, corev1.EnvVar{Name: envRun, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['" + batchv1.JobNameLabel + "']"}}})
	labels := without(t.Labels, map[string]string{"pod-template-hash": ""})
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: m.Name + "-run-", Namespace: m.Namespace, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "MirrorPartner", Name: m.Name, UID: m.UID, Controller: new(true)}},
		},
		Spec: batchv1.JobSpec{BackoffLimit: new(int32(0)), TTLSecondsAfterFinished: new(int32(manualRunKept)), Template: *t},
	}, nil
}

// arguments are the flags that pass the run to the program.
func (r ManualRun) arguments() []string {
	args := []string{triggerFlag + wire.MirrorManual}
	if !r.From.IsZero() {
		args = append(args, "--observed-from="+r.From.UTC().Format(time.RFC3339Nano))
	}
	if !r.To.IsZero() {
		args = append(args, "--observed-to="+r.To.UTC().Format(time.RFC3339Nano))
	}
	if r.VerifyOnly {
		args = append(args, "--verify-only")
	}
	if r.Force {
		args = append(args, "--force")
	}
	return args
}
