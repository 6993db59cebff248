// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
)

// TestClaimantsOf: a Site concerns only those that claim its code, in any namespace, whether or not it exists any more.
func TestClaimantsOf(t *testing.T) {
	site := func(namespace, name, code string) v1alpha1.Site {
		return v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.SiteSpec{Code: code}}
	}
	all := []v1alpha1.Site{site("north", "hub", "hub"), site("north", "late", "hub"), site("south", "hub", "hub"), site("south", "other", "other")}
	for _, test := range []struct {
		of   v1alpha1.Site
		want []types.NamespacedName
	}{
		{all[0], []types.NamespacedName{{Namespace: "north", Name: "late"}, {Namespace: "south", Name: "hub"}}},
		{all[3], nil},
		{site("north", "gone", "other"), []types.NamespacedName{{Namespace: "south", Name: "other"}}},
	} {
		if diff := cmp.Diff(test.want, plan.ClaimantsOf(&test.of, all)); diff != "" {
			t.Errorf("%s/%s (-want +got):\n%s", test.of.Namespace, test.of.Name, diff)
		}
	}
}
