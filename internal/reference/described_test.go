// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// notInGolden are conditions of kinds that golden files need not have: only substorm up runs a Site without a cluster.
var notInGolden = map[string][]string{"Site": {"NotApplied"}, "IngestGateway": {"NotApplied"}, "FeedServer": {"NotApplied"}, "FeedConsumer": {"NotApplied"}}

// TestConditionsAreDescribed: `kubectl explain KIND.status.conditions` names the conditions that the planner gives that kind, and no others.
func TestConditionsAreDescribed(t *testing.T) {
	c := conditions{says: map[string]string{}, kinds: map[string]map[string]bool{}, on: map[string]map[string]bool{}}
	if err := c.constants(filepath.Join(root, "operator", "api", "v1alpha1")); err != nil {
		t.Fatal(err)
	}
	if err := c.golden(filepath.Join(root, "operator", "plan", "testdata")); err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{}
	for condition, kinds := range c.kinds {
		for kind := range kinds {
			want[kind] = append(want[kind], condition)
		}
	}
	paths, err := filepath.Glob(filepath.Join(root, "crds", "*.yaml"))
	if err != nil || len(paths) != len(kindsOf) {
		t.Fatalf("CustomResourceDefinitions %q, and kinds in golden files %v: %v", paths, kindsOf, err)
	}
	word := regexp.MustCompile(`[A-Za-z]+`)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensions.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &crd); err != nil {
			t.Fatal(err)
		}
		kind := crd.Spec.Names.Kind
		status := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
		var described []string
		for _, name := range word.FindAllString(status.Properties["conditions"].Description, -1) {
			if c.says["Condition/"+name] != "" {
				described = append(described, name)
			}
		}
		slices.Sort(described)
		described = slices.Compact(described)
		is := append(slices.Clone(notInGolden[kind]), want[kind]...)
		slices.Sort(is)
		is = slices.Compact(is)
		if diff := cmp.Diff(is, described); diff != "" {
			t.Errorf("%s: (-what it has +what the description of status.conditions says)\n%s", kind, diff)
		}
	}
}
