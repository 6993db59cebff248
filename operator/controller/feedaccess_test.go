// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestLatestMayNoLongerRead: what waits in a consumer's own stream goes with the right
// to read it, also what a feed server that does not know yet puts there afterwards.
func TestLatestMayNoLongerRead(t *testing.T) {
	w := newFeedWorld(t)
	js := w.nats.JetStream(t)
	w.applyFeed("all", "")
	w.applyConsumer("latest", "all", "NATS", ", flow: {mode: Latest}")
	w.durable("CONS_hub_latest", "latest")
	const of = "live.hub.latest."
	w.publish(js, of+"obs.hub.camera.raw", "1")
	w.publish(js, of+"notice.hub.camera", "2")
	w.publish(js, of+"obs.hub.mag-1.raw", "3")
	w.publish(js, of+"gap.hub.latest", "4")
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"access":{"live":"Restricted"}}}`))
	if err := w.Patch(t.Context(), w.instrument("camera"), patch); err != nil {
		t.Fatal(err)
	}
	w.awaitSubjects("CONS_hub_latest", of+"obs.hub.mag-1.raw=3", of+"gap.hub.latest=4")
	w.publish(js, of+"obs.hub.camera.raw", "5")
	w.publish(js, of+"obs.hub.mag-2.raw", "6")
	w.awaitSubjects("CONS_hub_latest", of+"obs.hub.mag-1.raw=3", of+"gap.hub.latest=4", of+"obs.hub.mag-2.raw=6")

	c, err := js.Consumer(t.Context(), "CONS_hub_latest", w.durableName("latest"))
	if err != nil {
		t.Fatal(err)
	}
	batch, err := c.FetchNoWait(10)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for m := range batch.Messages() {
		got[m.Subject()] = true
	}
	if len(got) != 3 || got[of+"obs.hub.camera.raw"] || got[of+"notice.hub.camera"] {
		t.Errorf("fetched: %v", got)
	}
}
