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

// TestChannelDefaults: a channel whose members are left out is what the API server makes of one whose members are empty, with
// the precision of its payload.
func TestChannelDefaults(t *testing.T) {
	inst := stored[v1alpha1.Instrument](t, "instrument-channels-with-defaults")
	byName := map[string]v1alpha1.Channel{}
	for _, c := range inst.Spec.Channels {
		byName[c.Name] = c
	}
	compared := 0
	for name, filled := range byName {
		short, again := strings.CutSuffix(name, "-again")
		if !again {
			continue
		}
		compared++
		left := byName[short]
		left.Time, left.Parameters[0].Type = v1alpha1.ChannelTime{}, ""
		was := left.DeepCopy()
		is := left.WithDefaults()
		is.Name, filled.Time.Precision = filled.Name, v1alpha1.PrecisionNanoseconds
		if diff := cmp.Diff(filled, is); diff != "" {
			t.Errorf("%s (-the API server +WithDefaults):\n%s", short, diff)
		}
		if diff := cmp.Diff(*was, left); diff != "" {
			t.Errorf("%s was changed:\n%s", short, diff)
		}
	}
	if compared != 2 {
		t.Errorf("%d channels were compared", compared)
	}
	day := byName["day"]
	if is := day.WithDefaults(); is.Time.Precision != v1alpha1.PrecisionMilliseconds || is.Payload.IAGA2002 != nil {
		t.Errorf("a channel of IAGA-2002 became %+v", is)
	}
}
