// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/substorm/substorm/internal/schematest"
)

// shapes are the members of what fields refer to, by the end of their names: the longest end that fits.
var shapes = map[string][]string{
	"SecretKeyRef": {"key", "name"},
	"Ref":          {"name"},
	"tls":          {"caSecretRef", "certificateSecretRef"},
}

// kubernetesTypes are fields whose types are Kubernetes' own.
var kubernetesTypes = []string{"affinity", "tolerations", "topologySpreadConstraints", "conditions", "metadata"}

// TestShapes: a reference has one shape wherever it stands, and a field's name says what it is: a reference, a count, a time, a
// label selector.
func TestShapes(t *testing.T) {
	found := map[string]int{}
	for kind, crd := range schemas(t) {
		shaped(*crd.Spec.Versions[0].Schema.OpenAPIV3Schema, schematest.Path{kind}, func(at schematest.Path, s apiextensionsv1.JSONSchemaProps) {
			name := at[len(at)-1]
			members := slices.Sorted(maps.Keys(s.Properties))
			for end, want := range shapes {
				if name != end && !strings.HasSuffix(name, end) || end == "Ref" && strings.HasSuffix(name, "SecretKeyRef") {
					continue
				}
				if found[end]++; !slices.Equal(members, want) {
					t.Errorf("%s has the members %q, and each …%s has %q", at, members, end, want)
				}
			}
			switch {
			case slices.Equal(members, []string{"name"}) && s.Type == "object" && !strings.HasSuffix(name, "Ref"):
				t.Errorf("%s is a reference: its name ends in Ref", at)
			case strings.HasSuffix(name, "Count") && s.Type != "integer":
				t.Errorf("%s is of type %s: a count is an integer", at, s.Type)
			case s.Type == "boolean":
				t.Errorf("%s is a boolean: make it an enumeration, which can get a third value", at)
			case s.Format == "date-time" && name != "time" && !strings.HasSuffix(name, "Time"):
				t.Errorf("%s is a time: its name ends in Time", at)
			case name == "selector" && at[1] == "spec" && !slices.Equal(members, []string{"matchExpressions", "matchLabels"}):
				t.Errorf("%s is no label selector: give it another name", at)
			}
			if strings.HasSuffix(name, "Count") || s.Format == "date-time" || name == "selector" {
				found[name]++
			}
		})
	}
	for _, name := range []string{"SecretKeyRef", "Ref", "tls", "selector", "messageCount", "expirationTime"} {
		if found[name] == 0 {
			t.Errorf("no field was found that is a %s: this test shows nothing", name)
		}
	}
}

// shaped calls f for each field of ours.
func shaped(s apiextensionsv1.JSONSchemaProps, at schematest.Path, f func(schematest.Path, apiextensionsv1.JSONSchemaProps)) {
	for name, inner := range s.Properties {
		if slices.Contains(kubernetesTypes, name) {
			continue
		}
		f(at.To(name), inner)
		shaped(inner, at.To(name), f)
	}
	if s.Items != nil && s.Items.Schema != nil {
		shaped(*s.Items.Schema, at.To("[]"), f)
	}
}
