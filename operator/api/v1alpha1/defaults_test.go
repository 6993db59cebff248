// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// stored is an object of a manifest in testdata/good as the API server keeps it.
func stored[O any](t *testing.T, name string) O {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(text(t, "testdata/good/"+name+".yaml")), &u.Object); err != nil {
		t.Fatal(err)
	}
	if err := (manifest{objects: []*unstructured.Unstructured{u}}).apply(t); err != nil {
		t.Fatal(err)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
		t.Fatal(err)
	}
	var o O
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestListenerDefaults: a listener whose member is left out is what the API server makes of one whose member is empty.
func TestListenerDefaults(t *testing.T) {
	inst := stored[v1alpha1.Instrument](t, "instrument-listeners-with-defaults")
	byName := map[string]v1alpha1.Listener{}
	for _, l := range inst.Spec.Listeners {
		byName[l.Name] = l
	}
	compared := 0
	for name, filled := range byName {
		short, again := strings.CutSuffix(name, "-again")
		if !again {
			continue
		}
		compared++
		left := byName[short]
		if left.TCP != nil || left.UDP != nil || left.HTTP != nil {
			t.Errorf("%s has a member: %+v", short, left)
		}
		is := left.WithDefaults()
		is.Name, is.Port = filled.Name, filled.Port
		if diff := cmp.Diff(filled, is); diff != "" {
			t.Errorf("%s (-the API server +WithDefaults):\n%s", short, diff)
		}
		if byName[short].TCP != nil {
			t.Errorf("%s was changed", short)
		}
	}
	if compared != 3 {
		t.Errorf("%d protocols were compared", compared)
	}
}
