// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
)

// TestSelectAlike: labels that no Feed selects by change nothing for Feeds, and those that one does change something.
func TestSelectAlike(t *testing.T) {
	feeds := make([]v1alpha1.Feed, 4)
	feeds[1].Spec.Selector.MatchLabels = map[string]string{"group": "fields"}
	feeds[2].Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "owner", Operator: metav1.LabelSelectorOpDoesNotExist}}
	feeds[3].Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "owner", Operator: "Like"}} // no selector: what is known of it stays
	was := map[string]string{"group": "fields", "rack": "1"}
	for name, test := range map[string]struct {
		is   map[string]string
		want bool
	}{
		"a label that nobody asks for":     {map[string]string{"group": "fields", "rack": "2", "shelf": "a"}, true},
		"a value that a Feed asks for":     {map[string]string{"group": "cameras", "rack": "1"}, false},
		"none any more":                    {nil, false},
		"one that a Feed asks not to have": {map[string]string{"group": "fields", "rack": "1", "owner": "x"}, false},
	} {
		if is := accept.SelectAlike(feeds, was, test.is); is != test.want {
			t.Errorf("%s: alike %v", name, is)
		}
	}
	if !accept.SelectAlike(nil, was, nil) {
		t.Error("where there is no Feed labels are nothing to anybody")
	}
}
