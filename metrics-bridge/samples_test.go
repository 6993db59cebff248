// SPDX-License-Identifier: Apache-2.0

package metricsbridge_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kyaml "sigs.k8s.io/yaml"

	"github.com/substorm/substorm/internal/testenv"
)

// keda is the version of KEDA whose ScaledObjects the samples are.
const keda = "github.com/kedacore/keda/v2@v2.21.0"

// TestKEDASamples: an API server with KEDA's own definition of a ScaledObject takes the samples, field by field. That definition does not
// describe a trigger's metadata: there only the figures are looked up.
func TestKEDASamples(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", keda).Output()
	var module struct{ Dir string }
	if err == nil {
		err = json.Unmarshal(out, &module)
	}
	if err != nil {
		t.Fatalf("go mod download %s: %v\n%s", keda, err, out)
	}
	text, err := os.ReadFile(filepath.Join(module.Dir, "config", "crd", "bases", "keda.sh_scaledobjects.yaml"))
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err == nil {
		err = kyaml.Unmarshal(text, definition)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(testenv.KubernetesWith(t, []*apiextensionsv1.CustomResourceDefinition{definition}).Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range samples(t, "keda-*.yaml") {
		t.Run(name, func(t *testing.T) {
			o := &unstructured.Unstructured{}
			sample(t, name, &o.Object)
			o.SetNamespace("default")
			if err := c.Create(t.Context(), o, client.FieldValidation(metav1.FieldValidationStrict), client.DryRunAll); err != nil {
				t.Error(err)
			}
			triggers, _, _ := unstructured.NestedSlice(o.Object, "spec", "triggers")
			for _, trigger := range triggers {
				metadata, _, _ := unstructured.NestedStringMap(trigger.(map[string]any), "metadata")
				documented(t, metadata["query"]+metadata["valueLocation"])
			}
		})
	}
}

// TestHPASamples: the figures are there. That Kubernetes takes the samples is tested with all others.
func TestHPASamples(t *testing.T) {
	for _, name := range samples(t, "hpa-*.yaml") {
		hpa := &autoscalingv2.HorizontalPodAutoscaler{}
		sample(t, name, hpa)
		for _, m := range hpa.Spec.Metrics {
			text := m.External.Metric.Name + "{"
			for label := range m.External.Metric.Selector.MatchLabels {
				text += label + `="",`
			}
			documented(t, text+"}")
		}
	}
}

var (
	figure = regexp.MustCompile(`(substorm_[a-z_]+)\{([^}]*)\}`)
	label  = regexp.MustCompile(`([a-z]+)="`)
)

// documented fails for a figure, as Prometheus writes it, that the reference does not have as one of the operator with these labels.
func documented(t *testing.T, text string) {
	t.Helper()
	folder, err := testenv.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(folder, "docs", "reference", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, operator, _ := strings.Cut(string(page), "\n## operator\n")
	operator, _, _ = strings.Cut(operator, "\n## ")
	found := figure.FindAllStringSubmatch(text, -1)
	if len(found) == 0 {
		t.Errorf("%q names no figure", text)
	}
	for _, f := range found {
		_, row, known := strings.Cut(operator, "| `"+f[1]+"` | gauge | ")
		labels, _, _ := strings.Cut(row, " | ")
		if !known {
			t.Errorf("docs/reference/metrics.md has no gauge %s of the operator", f[1])
		}
		for _, l := range label.FindAllStringSubmatch(f[2], -1) {
			if !strings.Contains(labels, "`"+l[1]+"`") {
				t.Errorf("%s has the labels %s, not %s", f[1], labels, l[1])
			}
		}
	}
}

// samples are those whose name fits.
func samples(t *testing.T, pattern string) (names []string) {
	t.Helper()
	folder, err := testenv.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(folder, "docs", "samples", "scaling", pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names
}
