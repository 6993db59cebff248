// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/wire"
)

// TestLedgerInTheStatus: what the archivist reported stands in the Site's status, also
// where it was reported while no operator ran.
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
	value, err := wire.LedgerStatus{ClosedTo: "2026-11-18", WaitsFor: "gateway pool-1 holds 3 objects in its spool", Reopened: []wire.Day{"2026-11-02"}}.Encode()
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
