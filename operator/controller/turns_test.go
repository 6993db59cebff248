// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestTurns: a new build goes to one pool after the other, and each is woken when it is its turn: if they checked once a minute, as all
// pools do, ten would need longer than this test has patience. No pool waits for one that stands still, as b does here until it gets ports
// of its own.
func TestTurns(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.applySite("hub", "hub")
	pools := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
	first, _, _ := w.ports()
	for i, name := range pools {
		w.applyPool(name, fmt.Sprintf(", ports: {first: %d, last: %d}", first+i, first+i))
	}
	for _, name := range pools {
		eventually(t, "StatefulSet of "+name, func() error { return w.stands(name) })
	}
	w.stop()

	w.applyPool("b", fmt.Sprintf(", ports: {first: %d, last: %d}", first, first)) // which a has, and is older
	w.build = "next"
	w.start()
	var turns []string
	eventually(t, "all pools but b run the next build", func() error { return w.takeTurns(&turns, len(pools)-1) })
	if want := []string{"a", "c", "d", "e", "f", "g", "h", "i", "j"}; !slices.Equal(turns, want) {
		t.Errorf("the turns were %v, and should be %v", turns, want)
	}
	w.awaits("IngestGateway", "b", "Stalled", "True/Conflict")
	w.applyPool("b", fmt.Sprintf(", ports: {first: %d, last: %d}", first+1, first+1))
	eventually(t, "b runs the next build", func() error { return w.takeTurns(&turns, len(pools)) })
}

// stands sets a pool's StatefulSet status as a cluster would.
func (w *world) stands(pool string) error {
	set := &appsv1.StatefulSet{}
	if err := w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: pool}, set); err != nil {
		return err
	}
	n := *set.Spec.Replicas
	set.Status = appsv1.StatefulSetStatus{ObservedGeneration: set.Generation, Replicas: n, ReadyReplicas: n, UpdatedReplicas: n, AvailableReplicas: n}
	return w.Status().Update(w.t.Context(), set)
}

// takeTurns lets the one pool that has the next build roll out, notes it, and says how many there are.
func (w *world) takeTurns(turns *[]string, want int) error {
	var sets appsv1.StatefulSetList
	if err := w.List(w.t.Context(), &sets, client.InNamespace(w.namespace)); err != nil {
		return err
	}
	var rolling []string
	for i := range sets.Items {
		set := &sets.Items[i]
		if strings.HasSuffix(set.Spec.Template.Spec.Containers[0].Image, ":next") && set.Status.ObservedGeneration < set.Generation && !slices.Contains(*turns, set.Name) {
			rolling = append(rolling, set.Name)
		}
	}
	if len(rolling) > 1 {
		w.t.Fatalf("%q roll out at once", rolling)
	}
	for _, name := range rolling {
		if err := w.stands(name); err != nil {
			return err
		}
		*turns = append(*turns, name)
	}
	if len(*turns) < want {
		return fmt.Errorf("it was the turn of %v", *turns)
	}
	return nil
}
