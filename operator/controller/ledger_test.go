// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/wire"
)

// TestLedgerInTheStatus: the archivist's report is in the Site's status, even if it was made while no operator ran.
func TestLedgerInTheStatus(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.applySite("hub", "hub")
	w.awaits("Site", "hub", "Ready", "True/Ready")
	w.stop()
	kv, err := w.nats.JetStream(t).KeyValue(t.Context(), wire.StatusBucket("hub"))
	if err != nil {
		t.Fatal(err)
	}
	value, err := wire.Encode(wire.LedgerStatus{ClosedTo: "2026-11-18", WaitsFor: "gateway pool-1 holds 3 objects in its spool", Reopened: []wire.Day{"2026-11-02"}})
	if err == nil {
		_, err = kv.Put(t.Context(), wire.LedgerStatusKey, value)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.start()
	eventually(t, "the status should say how far the ledger is closed", func() error {
		site := w.site("hub")
		if err := w.Get(t.Context(), client.ObjectKeyFromObject(site), site); err != nil {
			return err
		}
		is := site.Status.Ledger
		if is == nil || is.ClosedTo != "2026-11-18" || is.WaitsFor == "" || len(is.Reopened) != 1 {
			return fmt.Errorf("it says %+v", is)
		}
		return nil
	})
}

// TestExpiryInTheStatus: what keeps data from expiring is a condition of the Site while the
// archivist reports it.
func TestExpiryInTheStatus(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.applySite("hub", "hub")
	w.awaits("Site", "hub", "Ready", "True/Ready")
	kv, err := w.nats.JetStream(t).KeyValue(t.Context(), wire.StatusBucket("hub"))
	if err != nil {
		t.Fatal(err)
	}
	report := func(s wire.ExpiryStatus) {
		t.Helper()
		value, err := wire.Encode(s)
		if err == nil {
			_, err = kv.Put(t.Context(), wire.ExpiryStatusKey, value)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	report(wire.ExpiryStatus{Count: 1, Stopped: []wire.StoppedExpiry{{Instrument: "camera", Days: 7, SharePercent: 63.2, MaxShare: 10}}})
	c := w.awaits("Site", "hub", "ExpiryRunning", "False/MoreThanMaxShare")
	for _, word := range []string{"camera", "63.2%", "maxShare is 10", "raise maxShare"} {
		if !strings.Contains(c.Message, word) {
			t.Errorf("the message lacks %q: %s", word, c.Message)
		}
	}
	eventually(t, "an Event should say so", func() error {
		events := &eventsv1.EventList{}
		if err := w.List(t.Context(), events); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == "MoreThanMaxShare" && e.Regarding.Kind == "Site" && strings.Contains(e.Note, "camera") {
				return nil
			}
		}
		return fmt.Errorf("there are %d others", len(events.Items))
	})
	report(wire.ExpiryStatus{Clocks: "the clocks do not agree"})
	w.awaits("Site", "hub", "ExpiryRunning", "False/ClocksDisagree")
	report(wire.ExpiryStatus{})
	eventually(t, "the condition should go", func() error {
		if c := find(conditionsOf(w.object("Site", "hub")), "ExpiryRunning"); c != nil {
			return fmt.Errorf("it says %+v", c)
		}
		return nil
	})
}
