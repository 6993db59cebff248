// SPDX-License-Identifier: Apache-2.0

//go:build linux

package pods_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/cli/up/kubeapi"
	"github.com/substorm/substorm/cli/up/pods"
	"github.com/substorm/substorm/crds"
	"github.com/substorm/substorm/internal/testenv"
)

// program is a program whose end the test decides.
type program struct {
	mu   sync.Mutex
	runs [][]string
	ends map[string]error
}

func (p *program) run(ctx context.Context, arguments []string) error {
	p.mu.Lock()
	p.runs = append(p.runs, arguments)
	end, ends := p.ends[arguments[0]]
	p.mu.Unlock()
	if ends {
		return end
	}
	<-ctx.Done()
	return nil
}

func (p *program) ran() [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.runs)
}

// TestJob: the pod of a Job runs once, with the Job's name in its environment; the Job says how it ended, and goes when it says so.
func TestJob(t *testing.T) {
	api, err := kubeapi.Open(kubeapi.Config{Dir: t.TempDir(), CRDs: crds.Files, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	t.Cleanup(func() { cancel(); parts.Wait() })
	parts.Go(func() { _ = api.Serve(ctx) })
	c, err := client.NewWithWatch(api.RESTConfig(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	p := &program{ends: map[string]error{"--run=good": nil, "--run=bad": errors.New("no space left"), "--run=passing": nil}}
	is := pods.New(pods.Config{Client: c, Folder: t.TempDir(), Programs: map[string]pods.Program{"mover": p.run},
		Override: func(pods.Started) []string { return nil }, Log: slog.New(slog.DiscardHandler)})
	parts.Go(func() { is.Run(ctx) })

	if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "field"}}); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	without := job("without")
	without.Spec.Template.Spec.Containers = nil
	if err := c.Create(ctx, without); err != nil { // an API server refuses it
		t.Fatal(err)
	}
	eventually(t, "a pod without containers is reported", func() bool {
		var pod corev1.Pod
		return c.Get(ctx, client.ObjectKey{Namespace: "field", Name: "without-0"}, &pod) == nil && pod.Status.Phase == corev1.PodPending
	})
	for _, name := range []string{"good", "bad", "passing", "lasting"} {
		if err := c.Create(ctx, job(name)); err != nil {
			t.Fatal(err)
		}
	}
	ended := func(name string, as batchv1.JobConditionType, message string) {
		t.Helper()
		eventually(t, name, func() bool {
			var j batchv1.Job
			if c.Get(ctx, client.ObjectKey{Namespace: "field", Name: name}, &j) != nil || len(j.Status.Conditions) == 0 {
				return false
			}
			return j.Status.Conditions[0].Type == as && j.Status.Conditions[0].Message == message && j.Status.Active == 0
		})
	}
	ended("good", batchv1.JobComplete, "")
	ended("bad", batchv1.JobFailed, "no space left")
	gone := func(o client.Object, name string) {
		t.Helper()
		eventually(t, name+" goes", func() bool {
			return apierrors.IsNotFound(c.Get(ctx, client.ObjectKey{Namespace: "field", Name: name}, o))
		})
	}
	gone(&batchv1.Job{}, "passing")
	gone(&corev1.Pod{}, "good-0")
	eventually(t, "the pod of one that lasts", func() bool {
		var pod corev1.Pod
		return c.Get(ctx, client.ObjectKey{Namespace: "field", Name: "lasting-0"}, &pod) == nil && pod.Labels[batchv1.JobNameLabel] == "lasting"
	})
	if err := c.Delete(ctx, job("lasting"), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	gone(&corev1.Pod{}, "lasting-0")
	times := map[string]int{}
	for _, arguments := range p.ran() {
		times[arguments[0]]++
	}
	for _, name := range []string{"good", "bad", "passing", "lasting"} {
		if times["--run="+name] != 1 {
			t.Errorf("%s ran %d times", name, times["--run="+name])
		}
	}
}

func job(name string) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "field", Name: name}}
	if name == "passing" {
		j.Spec.TTLSecondsAfterFinished = new(int32(0))
	}
	j.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "mover", Image: "none", Args: []string{"--run=$(RUN_NAME)"},
		Env: []corev1.EnvVar{{Name: "RUN_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['" + batchv1.JobNameLabel + "']"}}}}}}}
	return j
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range testenv.Attempts() {
		if is() {
			return
		}
	}
	t.Fatalf("%s: it did not happen within %v", what, testenv.Patience)
}
