// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/crds"
	"github.com/substorm/substorm/internal/testenv"
)

// start serves a folder until the test ends.
func start(t *testing.T, dir string) *Server {
	t.Helper()
	s, err := Open(Config{Dir: dir, CRDs: crds.Files, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return s
}

// TestSameAnswers sends every manifest of the kinds' tests to a kube-apiserver and to this
// server, which answer the same: what is refused and in which words, what is filled in, and
// who manages which field.
func TestSameAnswers(t *testing.T) {
	real, ours := testenv.Kubernetes(t).Config, start(t, t.TempDir()).RESTConfig()
	for _, folder := range []string{"bad", "good"} {
		paths, err := filepath.Glob(filepath.Join("../../../operator/api/v1alpha1/testdata", folder, "*.yaml"))
		if err != nil || len(paths) < 20 {
			t.Fatalf("%d manifests in %s: %v", len(paths), folder, err)
		}
		for _, path := range paths {
			t.Run(folder+"/"+strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
				objects := readManifests(t, path)
				for _, how := range []struct {
					name string
					send func(context.Context, dynamic.ResourceInterface, *unstructured.Unstructured) (*unstructured.Unstructured, error)
				}{{"create", create}, {"apply", apply}, {"patch", patch}} {
					t.Run(how.name, func(t *testing.T) {
						var answers [2][]answer
						for i, cfg := range []*rest.Config{real, ours} {
							for _, object := range objects {
								r := resourceOf(t, cfg, object)
								result, err := how.send(t.Context(), r, object.DeepCopy())
								answers[i] = append(answers[i], answerOf(t, result, err))
							}
							for _, object := range objects {
								if err := resourceOf(t, cfg, object).Delete(t.Context(), object.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
									t.Fatal(err)
								}
							}
						}
						if diff := gocmp.Diff(answers[0], answers[1]); diff != "" {
							t.Errorf("kube-apiserver's answers (-), ours (+):\n%s", diff)
						}
					})
				}
			})
		}
	}
}

// TestSameAnswersOfStatus changes the status of an Instrument, and afterwards its metadata and its spec, at a kube-apiserver and at this
// server: they find the same, whichever part of the rules each of them evaluates.
func TestSameAnswersOfStatus(t *testing.T) {
	configs := []*rest.Config{testenv.Kubernetes(t).Config, start(t, t.TempDir()).RESTConfig()}
	object := readManifests(t, "../../../operator/api/v1alpha1/testdata/good/instrument-small.yaml")[0]
	sender := func(offset string) map[string]any {
		return map[string]any{"sender": map[string]any{
			"clockOffset": offset, "queueBytes": 0, "queueObjectCount": 0, "reportTime": "2026-11-21T00:00:00Z", "setAsideCount": 0}}
	}
	for _, change := range []struct {
		name   string
		fields map[string]any
		status bool
		valid  bool
	}{
		{"good status", map[string]any{"status": sender("-3s")}, true, true},
		{"no duration", map[string]any{"status": sender("soon")}, true, false},
		{"duration out of bounds", map[string]any{"status": sender("2562048h")}, true, false},
		{"wrong type", map[string]any{"status": map[string]any{"sender": "late"}}, true, false},
		{"too long", map[string]any{"status": sender(strings.Repeat("1", 33))}, true, false},
		{"label", map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}}, false, true},
		{"bad label", map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "-"}}}, false, false},
		{"spec against a rule", map[string]any{"spec": map[string]any{"siteRef": map[string]any{"name": "another"}}}, false, false},
		{"status again", map[string]any{"status": sender("4s")}, true, true},
	} {
		var answers [2]answer
		for i, cfg := range configs {
			r := resourceOf(t, cfg, object)
			if change.name == "good status" {
				if _, err := create(t.Context(), r, object.DeepCopy()); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = r.Delete(context.Background(), object.GetName(), metav1.DeleteOptions{}) })
			}
			body, err := json.Marshal(change.fields)
			if err != nil {
				t.Fatal(err)
			}
			var subresources []string
			if change.status {
				subresources = []string{"status"}
			}
			result, err := r.Patch(t.Context(), object.GetName(), types.MergePatchType, body, metav1.PatchOptions{FieldManager: "test"}, subresources...)
			if (err == nil) != change.valid {
				t.Errorf("%s, server %d: %v", change.name, i, err)
			}
			answers[i] = answerOf(t, result, err)
		}
		if diff := gocmp.Diff(answers[0], answers[1]); diff != "" {
			t.Errorf("%s: kube-apiserver's answers (-), ours (+):\n%s", change.name, diff)
		}
	}
}

// TestLastingNamespaces: neither server deletes them.
func TestLastingNamespaces(t *testing.T) {
	configs := []*rest.Config{testenv.Kubernetes(t).Config, start(t, t.TempDir()).RESTConfig()}
	for _, name := range []string{"default", "kube-system"} {
		var answers [2]answer
		for i, cfg := range configs {
			c, err := dynamic.NewForConfig(cfg)
			if err != nil {
				t.Fatal(err)
			}
			err = c.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Delete(t.Context(), name, metav1.DeleteOptions{})
			if !apierrors.IsForbidden(err) {
				t.Fatalf("%s, server %d: %v", name, i, err)
			}
			answers[i] = answerOf(t, nil, err)
		}
		if diff := gocmp.Diff(answers[0], answers[1]); diff != "" {
			t.Errorf("%s: kube-apiserver's answers (-), ours (+):\n%s", name, diff)
		}
	}
}

// answer is what a server says of an object.
type answer struct {
	Status *metav1.Status
	Object map[string]any
}

func answerOf(t *testing.T, u *unstructured.Unstructured, err error) answer {
	t.Helper()
	if err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			t.Fatal(err)
		}
		s := status.Status()
		return answer{Status: &s}
	}
	for _, field := range []string{"uid", "creationTimestamp", "resourceVersion"} {
		if _, found, _ := unstructured.NestedString(u.Object, "metadata", field); !found {
			t.Errorf("%s has no %s", u.GetName(), field)
		}
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	managed := u.GetManagedFields()
	for i := range managed {
		managed[i].Time = nil
	}
	// They are in the order of those times, which have whole seconds.
	slices.SortFunc(managed, func(a, b metav1.ManagedFieldsEntry) int {
		return cmp.Or(strings.Compare(a.Manager, b.Manager), strings.Compare(string(a.Operation), string(b.Operation)), strings.Compare(a.Subresource, b.Subresource))
	})
	u.SetManagedFields(managed)
	return answer{Object: u.Object}
}

func resourceOf(t *testing.T, cfg *rest.Config, object *unstructured.Unstructured) dynamic.ResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	gvr, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
	return c.Resource(gvr).Namespace("default")
}

// create creates an object, or updates it where an earlier part of the manifest created it.
func create(ctx context.Context, r dynamic.ResourceInterface, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	current, err := r.Get(ctx, object.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return r.Create(ctx, object, metav1.CreateOptions{FieldManager: "test", FieldValidation: metav1.FieldValidationStrict})
	}
	if err != nil {
		return nil, err
	}
	object.SetResourceVersion(current.GetResourceVersion())
	return r.Update(ctx, object, metav1.UpdateOptions{FieldManager: "test", FieldValidation: metav1.FieldValidationStrict})
}

func apply(ctx context.Context, r dynamic.ResourceInterface, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return send(ctx, r, object, types.ApplyPatchType)
}

// patch merges what an earlier part of the manifest made with this one.
func patch(ctx context.Context, r dynamic.ResourceInterface, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if _, err := r.Get(ctx, object.GetName(), metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return create(ctx, r, object)
	}
	return send(ctx, r, object, types.MergePatchType)
}

func send(ctx context.Context, r dynamic.ResourceInterface, object *unstructured.Unstructured, how types.PatchType) (*unstructured.Unstructured, error) {
	body, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return r.Patch(ctx, object.GetName(), how, body, metav1.PatchOptions{FieldManager: "test", FieldValidation: metav1.FieldValidationStrict})
}

func readManifests(t *testing.T, path string) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	for _, part := range strings.Split(string(data), "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(part), &u.Object); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		u.SetNamespace("default")
		objects = append(objects, u)
	}
	return objects
}
