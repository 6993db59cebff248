// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// ages waits until what is made next is younger than an object: creation times are whole seconds.
func (w *world) ages(kind, name string) {
	w.t.Helper()
	time.Sleep(time.Until(w.object(kind, name).GetCreationTimestamp().Add(1100 * time.Millisecond)))
}

// object reads a resource of ours, and checks that what it says of itself is in
// order by the rules of kstatus.
func (w *world) object(kind, name string) *unstructured.Unstructured {
	w.t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	if err := w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, u); err != nil {
		w.t.Fatal(err)
	}
	if err := orderly(u); err != nil {
		text, _ := yaml.Marshal(u.Object["status"])
		w.t.Fatalf("%s %s: %v\n%s", kind, name, err, text)
	}
	return u
}

func orderly(u *unstructured.Unstructured) error {
	all := conditionsOf(u)
	if len(all) == 0 {
		return nil // not seen by the operator yet
	}
	ready, reconciling, stalled := find(all, "Ready"), find(all, "Reconciling"), find(all, "Stalled")
	observed, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	var problems []error
	for _, c := range all {
		if c.ObservedGeneration != observed || c.Reason == "" || c.Message == "" || c.LastTransitionTime.IsZero() {
			problems = append(problems, fmt.Errorf("condition %s is incomplete: %+v", c.Type, c))
		}
	}
	is, err := status.Compute(u)
	if err != nil {
		return err
	}
	want := status.InProgressStatus
	switch {
	case ready == nil:
		problems = append(problems, errors.New("there is no Ready"))
	case reconciling != nil && stalled != nil:
		problems = append(problems, errors.New("it is both Reconciling and Stalled"))
	case (reconciling != nil || stalled != nil) == (ready.Status == metav1.ConditionTrue):
		problems = append(problems, errors.New("Ready contradicts Reconciling and Stalled"))
	case u.GetDeletionTimestamp() != nil:
		want = status.TerminatingStatus
	case observed != u.GetGeneration():
	case stalled != nil:
		want = status.FailedStatus
	case ready.Status == metav1.ConditionTrue:
		want = status.CurrentStatus
	}
	if is.Status != want {
		problems = append(problems, fmt.Errorf("kstatus says %s (%s), and it should be %s", is.Status, is.Message, want))
	}
	return errors.Join(problems...)
}

func conditionsOf(u *unstructured.Unstructured) []metav1.Condition {
	var s struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	raw, _ := json.Marshal(u.Object["status"])
	_ = json.Unmarshal(raw, &s)
	return s.Conditions
}

func find(all []metav1.Condition, kind string) *metav1.Condition {
	for i := range all {
		if all[i].Type == kind {
			return &all[i]
		}
	}
	return nil
}

// awaits waits until a condition of the newest generation has a status and reason ("True/Ready") and its message has all the words, and
// returns it. If the condition had that reason before for another cause, the words distinguish the two.
func (w *world) awaits(kind, name, condition, want string, words ...string) metav1.Condition {
	w.t.Helper()
	var found metav1.Condition
	eventually(w.t, fmt.Sprintf("%s %s: %s should be %s", kind, name, condition, want), func() error {
		u := w.object(kind, name)
		c := find(conditionsOf(u), condition)
		if c == nil {
			return fmt.Errorf("there is no %s: %v", condition, u.Object["status"])
		}
		if is := string(c.Status) + "/" + c.Reason; is != want || c.ObservedGeneration != u.GetGeneration() {
			return fmt.Errorf("it is %s of generation %d (now %d): %s", is, c.ObservedGeneration, u.GetGeneration(), c.Message)
		}
		for _, word := range words {
			if !strings.Contains(c.Message, word) {
				return fmt.Errorf("its message does not say %q: %s", word, c.Message)
			}
		}
		found = *c
		return nil
	})
	return found
}

// status decodes the status of a resource.
func (w *world) status(kind, name string, into any) {
	w.t.Helper()
	raw, err := json.Marshal(w.object(kind, name).Object["status"])
	if err != nil {
		w.t.Fatal(err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		w.t.Fatal(err)
	}
}

// says fails unless a message holds all the words: what and what to do.
func says(t *testing.T, c metav1.Condition, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(c.Message, word) {
			t.Errorf("the message of %s does not say %q: %s", c.Type, word, c.Message)
		}
	}
}
