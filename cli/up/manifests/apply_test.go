// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/cli/up/kubeapi"
	"github.com/substorm/substorm/cli/up/manifests"
	"github.com/substorm/substorm/crds"
	"github.com/substorm/substorm/operator"
)

// api is a Kubernetes API of `substorm up`.
func api(t *testing.T) client.Client {
	t.Helper()
	s, err := kubeapi.Open(kubeapi.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", CRDs: crds.Files, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	scheme, err := operator.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(s.RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const readers = "apiVersion: v1\nkind: Secret\nmetadata: {name: readers}\n"

// TestSecretKeys: a key that is taken out of a Secret's file is gone, whether the file had it under stringData or data, and also where an
// earlier version applied stringData as it is. What another manager set stays.
func TestSecretKeys(t *testing.T) {
	c, dir := api(t), t.TempDir()
	apply := func(text string) {
		t.Helper()
		write(t, dir, "readers.yaml", readers+text)
		objects, err := manifests.Up.Load([]string{dir}, "default")
		if err == nil {
			_, err = manifests.Apply(t.Context(), c, objects, slog.New(slog.DiscardHandler))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	holds := func(when, want string) {
		t.Helper()
		var secret corev1.Secret
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "readers"}, &secret); err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
			all = append(all, key+"="+string(secret.Data[key]))
		}
		if got := strings.Join(all, " "); got != want {
			t.Errorf("%s the Secret holds %q, want %q", when, got, want)
		}
	}
	// As a version before this one applied it.
	for _, data := range []map[string]any{{"uni": "1", "ops": "2", "old": "3"}, {"uni": "1", "ops": "2"}} {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "stringData": data,
			"metadata": map[string]any{"name": "readers", "namespace": "default", "labels": map[string]any{"substorm.dev/from-file": "true"}}}}
		if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("substorm-up"), client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
	}
	holds("before", "old=3 ops=2 uni=1")
	if err := c.Patch(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "readers"}}, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"theirs":"NA=="}}`)),
		client.FieldOwner("kubectl-patch")); err != nil {
		t.Fatal(err)
	}

	apply("stringData: {uni: '1', ops: '2'}\n")
	holds("once it is healed", "ops=2 theirs=4 uni=1")
	apply("stringData: {uni: '1'}\n")
	holds("without a key of stringData", "theirs=4 uni=1")
	apply("stringData: {uni: '5'}\ndata: {uni: MQ==, lab: Ng==}\n")
	holds("with both", "lab=6 theirs=4 uni=5")
	apply("data: {lab: Ng==}\n")
	holds("without stringData", "lab=6 theirs=4")
}
