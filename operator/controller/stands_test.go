// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// madeOnes are objects that the operator makes, in the paths of requests.
var madeOnes = regexp.MustCompile(`/namespaces/[^/]+/((?:statefulsets|deployments|services|serviceaccounts|poddisruptionbudgets|secrets)(?:/[^/]+)?)$`)

// made counts the writes to objects that the operator makes, and forgets them.
func (a *writesTo) made() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	counts := map[string]int{}
	for _, path := range a.paths {
		if found := madeOnes.FindStringSubmatch(path); found != nil {
			counts[found[1]]++
		}
	}
	a.paths = nil
	return counts
}

// TestOnlyWhatDiffersIsApplied: reconciling a resource again applies nothing. If it changed, only the object that shows the change is
// applied, once: for a pool, a FeedServer and a Site with its archivist.
func TestOnlyWhatDiffersIsApplied(t *testing.T) {
	w := newWorld(t)
	writes := &writesTo{}
	w.between = writes.through
	w.start()
	w.applySite("hub", "hub")
	w.applyPool("pool", ", service: {type: ClusterIP}")
	w.applyServer("hub", ", replicas: 1")
	w.awaits("Site", "hub", "Ready", "True/Ready")
	w.awaits("IngestGateway", "pool", "Ready", "False/Progressing")
	w.awaits("FeedServer", "hub", "Ready", "False/Progressing")
	first := writes.made()
	for _, object := range []string{"statefulsets/pool", "services/pool", "deployments/hub-feed-server", "services/hub-feed-server", "deployments/hub-archivist"} {
		if first[object] == 0 {
			t.Errorf("no write of %s was seen: %v", object, first)
		}
	}

	look := func(kind, name, spec string) {
		t.Helper()
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"example.org/looked-at":"again"}},"spec":{%s}}`, spec)
		if err := w.Patch(t.Context(), w.object(kind, name), client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	const template = `"podTemplate":{"labels":{"example.org/pods":"others"}}`
	look("IngestGateway", "pool", "")
	look("FeedServer", "hub", "")
	look("Site", "hub", "")
	look("IngestGateway", "pool", template)
	look("FeedServer", "hub", template)
	look("Site", "hub", `"archivist":{`+template+`}`)

	set, server, archivist := &appsv1.StatefulSet{}, &appsv1.Deployment{}, &appsv1.Deployment{}
	for name, of := range map[string]struct {
		client.Object
		template *corev1.PodTemplateSpec
	}{"pool": {set, &set.Spec.Template}, "hub-feed-server": {server, &server.Spec.Template}, "hub-archivist": {archivist, &archivist.Spec.Template}} {
		eventually(t, "the pods of "+name, func() error {
			if err := w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, of.Object); err != nil {
				return err
			}
			if of.template.Labels["example.org/pods"] != "others" {
				return fmt.Errorf("they have the labels %v", of.template.Labels)
			}
			return nil
		})
	}
	w.stop() // what it had begun is over
	if diff := cmp.Diff(map[string]int{"statefulsets/pool": 1, "deployments/hub-feed-server": 1, "deployments/hub-archivist": 1}, writes.made()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}
