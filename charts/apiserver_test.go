// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kyaml "sigs.k8s.io/yaml"

	"github.com/substorm/substorm/internal/testenv"
)

// startAPIServer runs a real API server that knows our kinds and has the namespaces that the renderings name. Pods there
// must meet the restricted Pod Security standard.
func startAPIServer(t *testing.T) client.Client {
	t.Helper()
	return newNamespaces(t, testenv.Kubernetes(t))
}

// newNamespaces makes the namespaces that the renderings name.
func newNamespaces(t *testing.T, server *testenv.KubernetesAPI) client.Client {
	t.Helper()
	c, err := client.New(server.Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"aurora", "thule", "andoya"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
		if err := c.Create(t.Context(), ns); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// eventually tries until there is no error.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	var err error
	for range testenv.Attempts() {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

func decode(t *testing.T, manifests string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096)
	for {
		var o unstructured.Unstructured
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(o.Object) > 0 {
			objects = append(objects, &o)
		}
	}
}

// TestAPIServerTakesTheManifests: every object, field by field, and every pod that would come of it.
func TestAPIServerTakesTheManifests(t *testing.T) {
	c := startAPIServer(t)
	for _, r := range renderings {
		t.Run(r.name, func(t *testing.T) {
			objects := decode(t, r.render(t))
			if len(objects) < 3 {
				t.Fatalf("%d objects", len(objects))
			}
			for _, o := range objects {
				if o.GetNamespace() == "" { // the charts leave it to helm where a hook makes the object
					o.SetNamespace("aurora")
				}
				tryCreate(t, c, o)
				if pod := podOf(t, o); pod != nil {
					tryCreate(t, c, pod)
				}
			}
		})
	}
	t.Run("a pod as root is refused", func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "aurora"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "root", Image: "root"}}}}
		if err := c.Create(t.Context(), pod, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "restricted") {
			t.Errorf("got %v: this test would pass whatever the charts ask for", err)
		}
	})
}

func tryCreate(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	if kind := o.GetObjectKind().GroupVersionKind(); kind.Group == monitoring.GroupName { // the API server does not know it
		text, err := json.Marshal(o)
		if err == nil {
			err = kyaml.UnmarshalStrict(text, &monitoringv1.PodMonitor{})
		}
		if err != nil || kind.Kind != monitoringv1.PodMonitorsKind || kind.Version != monitoringv1.Version {
			t.Errorf("%s %s: %v", kind, o.GetName(), err)
		}
		return
	}
	err := c.Create(t.Context(), o, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
	if err != nil {
		t.Errorf("%s %s: %v", o.GetObjectKind().GroupVersionKind().Kind, o.GetName(), err)
	}
}

// podOf returns the pod that a workload would make, or nil.
func podOf(t *testing.T, o *unstructured.Unstructured) *corev1.Pod {
	t.Helper()
	template, found, err := unstructured.NestedMap(o.Object, "spec", "template")
	if err != nil || !found {
		return nil
	}
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, pod); err != nil {
		t.Fatal(err)
	}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	pod.Name, pod.Namespace = o.GetName()+"-0", o.GetNamespace()
	claims, _, err := unstructured.NestedSlice(o.Object, "spec", "volumeClaimTemplates")
	if err != nil {
		t.Fatal(err)
	}
	for _, claim := range claims { // what the StatefulSet's controller does
		name, _, _ := unstructured.NestedString(claim.(map[string]any), "metadata", "name")
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name + "-" + pod.Name}}})
	}
	return pod
}

// TestWaitWaits: helm --wait asks kstatus, and kstatus regards a resource without a status as ready. Ours have a status that says that no
// controller has seen them.
func TestWaitWaits(t *testing.T) {
	c := startAPIServer(t)
	seen := map[string]bool{}
	for _, o := range decode(t, rendering{chart: "substorm-site"}.render(t)) {
		if o.GroupVersionKind().Group != "substorm.dev" {
			continue
		}
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		result, err := status.Compute(o)
		if err != nil {
			t.Fatal(err)
		}
		if result.Status != status.InProgressStatus {
			t.Errorf("%s that no operator has seen: %s, want %s", o.GetKind(), result.Status, status.InProgressStatus)
		}
		seen[o.GetKind()] = true
	}
	if !seen["Site"] || !seen["IngestGateway"] {
		t.Errorf("the chart made %v", seen)
	}
}
