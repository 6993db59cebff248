// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// TestWhoExplainsAFeed: what an audit finds different of a Feed is explained by the event of an Instrument that came, went, or
// has other labels, access or entry, and by no other Instrument's.
func TestWhoExplainsAFeed(t *testing.T) {
	of := func(change func(map[string]*v1alpha1.Instrument)) *judgedSite {
		all := map[string]*v1alpha1.Instrument{}
		for _, name := range []string{"entry", "labels", "access", "port", "begins", "goes"} {
			all[name] = &v1alpha1.Instrument{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"group": "fields"}}}
		}
		change(all)
		listed := map[string]bool{}
		var instruments []v1alpha1.Instrument
		for name, inst := range all {
			listed[name] = inst.Spec.Type != "Unlisted"
			instruments = append(instruments, *inst)
		}
		return judgedAs(instruments, nil, listed)
	}
	listens := func(port int32) []v1alpha1.Listener {
		return []v1alpha1.Listener{{Name: "tcp", Protocol: v1alpha1.ListenerTCP, Port: port}}
	}
	before := of(func(all map[string]*v1alpha1.Instrument) { all["port"].Spec.Listeners = listens(30099) })
	after := of(func(all map[string]*v1alpha1.Instrument) {
		all["entry"].Spec.Type = "Unlisted"
		all["labels"].Labels = map[string]string{"group": "cameras"}
		all["access"].Spec.Access.Live = v1alpha1.AccessRestricted
		all["port"].Spec.Listeners = listens(30100)
		all["begins"].Spec.Listeners = listens(30101) // what is pulled may not go there any more
		all["comes"] = &v1alpha1.Instrument{ObjectMeta: metav1.ObjectMeta{Name: "comes"}}
		delete(all, "goes")
	})
	names := before.changedInstruments(after)
	if diff := cmp.Diff([]string{"access", "begins", "comes", "entry", "goes", "labels"}, names); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if names := before.changedInstruments(nil); names != nil {
		t.Errorf("of a Site that could not be judged: %q", names)
	}

	site := types.NamespacedName{Namespace: "field", Name: "hub"}
	for name, want := range map[string]bool{"labels": true, "port": false} {
		is := &touched{}
		is.add(site, touch{names: map[string]bool{name: true}})
		if got := is.hasEvent(site, append(names, "feed")); got != want {
			t.Errorf("an event of %s explains what was found: %v", name, got)
		}
	}
}
