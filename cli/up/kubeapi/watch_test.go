// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case e := <-w.ResultChan():
		return e
	case <-t.Context().Done():
		t.Fatal("the watch is silent")
	}
	return watch.Event{}
}

// TestWatchBySelector: what no longer matches is deleted to who selects.
func TestWatchBySelector(t *testing.T) {
	api := kubernetes.NewForConfigOrDie(start(t, t.TempDir()).RESTConfig()).CoreV1().Secrets("default")
	w, err := api.Watch(t.Context(), metav1.ListOptions{LabelSelector: "a=b"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	s, err := api.Create(t.Context(), secret("s", "x"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		label string
		want  watch.EventType
	}{{"b", watch.Added}, {"", watch.Deleted}, {"b", watch.Added}} {
		s.Labels = map[string]string{"a": step.label}
		if s, err = api.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		e := next(t, w)
		accessor, ok := e.Object.(metav1.Object)
		if !ok || e.Type != step.want || accessor.GetResourceVersion() != s.ResourceVersion {
			t.Fatalf("after label %q: %+v, want %s at %s", step.label, e, step.want, s.ResourceVersion)
		}
	}
}

// TestWatchFromTooFarBack: a client that comes with an old version lists again.
func TestWatchFromTooFarBack(t *testing.T) {
	s := start(t, t.TempDir())
	api := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().Secrets("default")
	first, err := api.Create(t.Context(), secret("s", "0"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range historyEvents + 1 {
		_, err := s.store.write(s.collector.events, types.NamespacedName{Namespace: "default", Name: fmt.Sprint(i)}, 0, s.byResource[corev1.SchemeGroupVersion.WithResource("events")].main.newFunc(), true)
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err = api.Watch(context.Background(), metav1.ListOptions{ResourceVersion: first.ResourceVersion})
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("error: %v", err)
	}
}

// TestConflict: an update of an object that another client changed is refused.
func TestConflict(t *testing.T) {
	api := kubernetes.NewForConfigOrDie(start(t, t.TempDir()).RESTConfig()).CoreV1().Secrets("default")
	first, err := api.Create(t.Context(), secret("s", "0"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first.Data["value"] = []byte("1")
	if _, err := api.Update(t.Context(), first, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.Update(t.Context(), first, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("error: %v", err)
	}
	if _, err := api.Create(t.Context(), secret("s", "0"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("error: %v", err)
	}
}
