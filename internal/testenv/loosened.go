// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"encoding/json"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// ApplyLoosened applies an object past the validation of one field of its spec, as a version
// of the CRD that does not know it would let it in, and restores the validation. Plural names
// the object's kind, field the way to a text.
func ApplyLoosened(t testing.TB, config *rest.Config, plural string, field []string, object string) {
	t.Helper()
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(object), &u.Object); err != nil {
		t.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	if err := c.Get(t.Context(), client.ObjectKey{Name: plural + ".substorm.dev"}, crd); err != nil {
		t.Fatal(err)
	}
	fields := []string{"schema", "openAPIV3Schema", "properties", "spec"}
	for _, f := range field {
		fields = append(fields, "properties", f)
	}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	before, found, err := unstructured.NestedMap(versions[0].(map[string]any), fields...)
	if err != nil || !found {
		t.Fatalf("the CRD has no %s: %v", field, err)
	}
	selectable, _, _ := unstructured.NestedSlice(versions[0].(map[string]any), "selectableFields")
	replace := func(schema map[string]any, selectable []any) {
		t.Helper()
		const version = "/spec/versions/0/"
		patch, err := json.Marshal([]map[string]any{
			{"op": "replace", "path": version + strings.Join(fields, "/"), "value": schema},
			{"op": "add", "path": version + "selectableFields", "value": selectable}, // which may be in what is replaced
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Patch(t.Context(), crd.DeepCopy(), client.RawPatch("application/json-patch+json", patch)); err != nil {
			t.Fatal(err)
		}
	}
	replace(map[string]any{"type": "string"}, []any{})
	defer replace(before, selectable)
	for range Attempts() { // until the API server goes by the CRD of now
		if err = c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u.DeepCopy()), client.FieldOwner("kubectl")); err == nil {
			return
		}
	}
	t.Fatalf("the API server does not take what it refused: %v", err)
}
