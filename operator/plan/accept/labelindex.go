// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	operator "k8s.io/apimachinery/pkg/selection"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// labelIndex finds the Instruments that a selector matches without looking at all of them: hundreds of Feeds select among
// ten thousand.
type labelIndex struct {
	instruments []*v1alpha1.Instrument // by name
	// having are the instruments with a label of a value, as indexes of instruments; nil until a selector asks.
	having map[label][]int32
}

type label struct{ key, value string }

// indexLabels indexes the listed ones of the Instruments.
func indexLabels(instruments []v1alpha1.Instrument, listed map[string]bool) *labelIndex {
	x := &labelIndex{}
	for i := range instruments {
		if listed[instruments[i].Name] {
			x.instruments = append(x.instruments, &instruments[i])
		}
	}
	slices.SortFunc(x.instruments, func(a, b *v1alpha1.Instrument) int { return cmp.Compare(a.Name, b.Name) })
	return x
}

// selected returns the names of the Instruments that a selector matches, in order.
func (x *labelIndex) selected(selector labels.Selector) (names []string) {
	add := func(inst *v1alpha1.Instrument) {
		if selector.Matches(labels.Set(inst.Labels)) {
			names = append(names, inst.Name)
		}
	}
	few, found := x.candidates(selector)
	if !found {
		for _, inst := range x.instruments {
			add(inst)
		}
	}
	for _, i := range few {
		add(x.instruments[i])
	}
	return names
}

// candidates returns the fewest Instruments among which are all that a selector matches; found is false where it asks for no
// label of one value, so that all may match.
func (x *labelIndex) candidates(selector labels.Selector) (few []int32, found bool) {
	requirements, _ := selector.Requirements()
	for _, r := range requirements {
		one := r.Operator() == operator.In || r.Operator() == operator.Equals || r.Operator() == operator.DoubleEquals
		if !one || len(r.ValuesUnsorted()) != 1 {
			continue
		}
		if x.having == nil {
			x.index()
		}
		if having := x.having[label{r.Key(), r.ValuesUnsorted()[0]}]; !found || len(having) < len(few) {
			few, found = having, true
		}
	}
	return few, found
}

func (x *labelIndex) index() {
	x.having = map[label][]int32{}
	for i, inst := range x.instruments {
		for key, value := range inst.Labels {
			x.having[label{key, value}] = append(x.having[label{key, value}], int32(i))
		}
	}
}
