// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mirror_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/cli/kube/kubetest"
	"github.com/substorm/substorm/cli/mirror"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/workload"
)

func command(t *testing.T, cluster *kubetest.Cluster, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := mirror.Command()
	c.SetArgs(slices.Concat([]string{"run"}, args, []string{"--kubeconfig", cluster.Kubeconfig, "-n", "field"}))
	c.SetOut(&out)
	c.SetErr(t.Output())
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

func partner(name string) *v1alpha1.MirrorPartner {
	return &v1alpha1.MirrorPartner{ObjectMeta: metav1.ObjectMeta{Namespace: "field", Name: name}, Spec: v1alpha1.MirrorPartnerSpec{
		SiteRef: v1alpha1.LocalReference{Name: "demo"}, Direction: v1alpha1.MirrorPush, Protocol: v1alpha1.MirrorProtocolRsync,
		Rsync:    &v1alpha1.MirrorRsync{Transport: v1alpha1.MirrorRsyncOverDaemon, Daemon: &v1alpha1.MirrorRsyncDaemon{Address: "rsync.example:873", Module: "aurora"}},
		Schedule: &v1alpha1.MirrorSchedule{Cron: "15 2 * * *"},
	}}
}

// cronJob is what an operator made of a partner.
func cronJob(partner string) *batchv1.CronJob {
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{workload.LabelInstance: partner, workload.LabelName: workload.MirrorProgram}}}
	template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
		Name: workload.MirrorProgram, Image: "substorm/mirror-jobs:dev", Args: []string{"--site=demo", "--partner=" + partner, "--run=$(RUN_NAME)", "--trigger=scheduled"}}}}
	return &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "field", Name: workload.MirrorName(partner)}, Spec: batchv1.CronJobSpec{
		Schedule: "15 2 * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}}}}
}

// TestRun makes a Job of the CronJob's pods, which the API server takes, and waits for what the status says of it. The test answers in
// the operator's place.
func TestRun(t *testing.T) {
	cluster := kubetest.Start(t)
	m := partner("university")
	cluster.Create(t, m, partner("young"), cronJob("university"))
	if _, err := command(t, cluster, "young"); err == nil || !strings.Contains(err.Error(), "condition Ready") {
		t.Errorf("before the operator made anything: %v", err)
	}
	if _, err := command(t, cluster, "nobody"); err == nil || !strings.Contains(err.Error(), `MirrorPartner "nobody"`) {
		t.Errorf("of nobody: %v", err)
	}
	out, err := command(t, cluster, "university", "--observed", "2026-01-01..2026-02-01T12:00:00+01:00", "--verify-only")
	if err != nil || !strings.Contains(out, "kubectl logs -f job/university-run-") {
		t.Fatalf("%v\n%s", err, out)
	}
	var jobs batchv1.JobList
	if err := cluster.List(t.Context(), &jobs, client.InNamespace("field")); err != nil || len(jobs.Items) != 1 {
		t.Fatalf("%d Jobs, %v", len(jobs.Items), err)
	}
	job := &jobs.Items[0]
	want := []string{"--site=demo", "--partner=university", "--run=$(RUN_NAME)", "--trigger=manual", "--observed-from=2026-01-01T00:00:00Z", "--observed-to=2026-02-01T11:00:00Z", "--verify-only"}
	if args := job.Spec.Template.Spec.Containers[0].Args; !slices.Equal(args, want) {
		t.Errorf("flags %q, want %q", args, want)
	}
	if !metav1.IsControlledBy(job, m) || *job.Spec.BackoffLimit != 0 || job.Labels[workload.LabelTrigger] != "manual" || job.Labels[workload.LabelInstance] != "university" {
		t.Errorf("Job %+v", job)
	}
	if _, err := command(t, cluster, "university", "--wait", "1s"); err == nil || !strings.Contains(err.Error(), "has not ended within 1s, and goes on") {
		t.Errorf("a run that lasts: %v", err)
	}
}

// TestRunStandalone: under substorm up there is no log of a Job to follow.
func TestRunStandalone(t *testing.T) {
	cluster := kubetest.Start(t)
	cluster.Create(t, partner("university"), cronJob("university"),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "field", Name: plan.StandaloneSecret}})
	out, err := command(t, cluster, "university")
	if err != nil || strings.Contains(out, "kubectl") || !strings.Contains(out, "substorm delete job university-run-") || !strings.Contains(out, "that of substorm up, in the lines with run=university-run-") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestRunEnds: the command ends as the run does.
func TestRunEnds(t *testing.T) {
	for result, says := range map[v1alpha1.MirrorResult]string{v1alpha1.MirrorSucceeded: "4 objects of 400 bytes moved", v1alpha1.MirrorFailed: "failed: PartnerFull no space"} {
		t.Run(string(result), func(t *testing.T) {
			cluster := kubetest.Start(t)
			m := partner("university")
			cluster.Create(t, m, cronJob("university"))
			answered := make(chan error, 1)
			go func() { answered <- answer(t, cluster, m, result) }()
			out, err := command(t, cluster, "university", "--wait", "1m")
			if failed := <-answered; failed != nil {
				t.Fatal(failed)
			}
			if (err != nil) != (result == v1alpha1.MirrorFailed) || err == nil && !strings.Contains(out, says) || err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// answer says in the status how the one Job ended, once there is one.
func answer(t *testing.T, cluster *kubetest.Cluster, m *v1alpha1.MirrorPartner, result v1alpha1.MirrorResult) error {
	for range testenv.Attempts() {
		var jobs batchv1.JobList
		if err := cluster.List(t.Context(), &jobs, client.InNamespace("field")); err != nil {
			return err
		}
		if len(jobs.Items) == 0 {
			continue
		}
		m.Status.Runs = []v1alpha1.MirrorRun{{Name: jobs.Items[0].Name, Trigger: v1alpha1.MirrorTriggerManual, Result: result, StartTime: metav1.Now(), ObjectCount: 4, Bytes: 400}}
		if result == v1alpha1.MirrorFailed {
			m.Status.Runs[0].Reason, m.Status.Runs[0].Message = "PartnerFull", "no space"
		}
		return cluster.Status().Update(t.Context(), m)
	}
	return errors.New("there is no Job")
}

// TestBadRuns: what makes no sense is refused before anything is asked of a cluster.
func TestBadRuns(t *testing.T) {
	t.Parallel()
	cluster := &kubetest.Cluster{Kubeconfig: "/nowhere"}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"university", "--observed", "yesterday"}, "A..B"},
		{[]string{"university", "--observed", ".."}, "A..B"},
		{[]string{"university", "--observed", "2026-13-01.."}, "neither a day nor a time"},
		{[]string{"university", "--observed", "2026-02-01..2026-01-01"}, "--observed is A..B"},
		{[]string{"university", "--verify-only", "--force"}, "choose --verify-only or --force"},
		{nil, "arg(s)"},
	} {
		if _, err := command(t, cluster, c.args...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v", c.args, err)
		}
	}
}
