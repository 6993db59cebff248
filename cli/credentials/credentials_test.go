// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"bytes"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/cli/kube/kubetest"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
)

func run(t *testing.T, cluster *kubetest.Cluster, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := Command()
	c.SetArgs(append(args, "--kubeconfig", cluster.Kubeconfig, "-n", "field"))
	c.SetOut(&out)
	c.SetErr(t.Output())
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// TestRotate asks for another user, waits until the operator's answer is in the status, and says how to revoke the one
// from before. The test answers in the operator's place.
func TestRotate(t *testing.T) {
	cluster := kubetest.Start(t)
	pool := &v1alpha1.IngestGateway{ObjectMeta: metav1.ObjectMeta{Namespace: "field", Name: "north"}}
	pool.Spec.SiteRef.Name = "demo"
	other := pool.DeepCopy()
	other.Name = "south"
	cluster.Create(t, pool, other)

	if _, err := run(t, cluster, "rotate", "gateway", "north"); err == nil || !strings.Contains(err.Error(), "accountKeySecretRef") {
		t.Errorf("without credentials: %v", err)
	}
	if _, err := run(t, cluster, "rotate", "camera", "north"); err == nil || !strings.Contains(err.Error(), "feed-server") {
		t.Errorf("of a kind that has none: %v", err)
	}
	expires := metav1.NewTime(time.Date(2026, 12, 21, 18, 0, 0, 0, time.UTC))
	renews := metav1.NewTime(time.Date(2026, 12, 1, 18, 0, 0, 0, time.UTC))
	answer := func(pool *v1alpha1.IngestGateway, user string) {
		t.Helper()
		pool.Status.Credentials = &v1alpha1.CredentialsStatus{User: user, ExpirationTime: &expires, RenewalTime: &renews}
		if err := cluster.Status().Update(t.Context(), pool); err != nil {
			t.Error(err)
		}
	}
	answer(pool, "UOLD")
	answer(other, "UOTHER")
	if out, err := run(t, cluster, "ls"); err != nil || !strings.Contains(out, "gateway  north  2026-12-21T18:00:00Z  2026-12-01T18:00:00Z  UOLD") {
		t.Errorf("ls: %v\n%s", err, out)
	}
	if _, err := run(t, cluster, "rotate", "gateway", "south", "--wait", "1s"); err == nil || !strings.Contains(err.Error(), "UOTHER") {
		t.Errorf("while no operator runs: %v", err)
	}

	rotate := func(old, next string) string {
		t.Helper()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range testenv.Attempts() {
				if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(pool), pool); err != nil {
					t.Error(err)
					return
				}
				if pool.Annotations[v1alpha1.AnnotationRotateCredentials] == old {
					answer(pool, next)
					return
				}
			}
			t.Error("nobody asks for a rotation")
		}()
		out, err := run(t, cluster, "rotate", "gateway", "north")
		if err != nil {
			t.Fatal(err)
		}
		<-done
		return out
	}
	out := rotate("UOLD", "UNEW")
	for _, want := range []string{"user UOLD is replaced by UNEW", "substorm quickstart revoke UOLD", "--user-public-key UOLD"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}

	// Under substorm up neither command is of use, and the old credentials open a socket of this computer alone.
	cluster.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "field", Name: plan.StandaloneSecret}})
	out = rotate("UNEW", "UNEWER")
	for _, want := range []string{"user UNEW is replaced by UNEWER", "valid until 2026-12-21T18:00:00Z", "there is no command to revoke"} {
		if !strings.Contains(out, want) {
			t.Errorf("under substorm up it does not say %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "quickstart") || strings.Contains(out, "nsc") {
		t.Errorf("under substorm up it names commands that have no effect there:\n%s", out)
	}
}
