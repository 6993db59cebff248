// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// TestLabelIndex: the index finds what a look at each Instrument finds.
func TestLabelIndex(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	values := []string{"", "a", "b", "c"}
	instruments, listed := make([]v1alpha1.Instrument, 200), map[string]bool{}
	for i, at := range random.Perm(len(instruments)) {
		inst := &instruments[at]
		inst.Name, inst.Labels = fmt.Sprintf("i-%d", i), map[string]string{}
		for _, key := range []string{"kind", "site", "owner"} {
			if random.IntN(3) > 0 {
				inst.Labels[key] = values[random.IntN(len(values))]
			}
		}
		listed[inst.Name] = random.IntN(5) > 0
	}
	for _, text := range []string{
		"", "kind=a", "kind=", "kind==b,site=c", "kind in (a)", "kind in (a,b)", "kind in (a,b),owner=c", "kind!=a", "kind notin (a)", "kind notin (a),site=a",
		"kind", "!kind", "kind,site=b", "kind=a,kind=b", "kind=no", "no=a", "owner=a,!site",
	} {
		selector, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for i := range instruments {
			if listed[instruments[i].Name] && selector.Matches(labels.Set(instruments[i].Labels)) {
				want = append(want, instruments[i].Name)
			}
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, indexLabels(instruments, listed).selected(selector)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}
