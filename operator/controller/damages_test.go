// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// What the scrub found is a condition of its Instrument, until it is whole again.
func TestDamage(t *testing.T) {
	w := newWorld(t)
	w.start()
	first, _, ports := w.ports()
	w.applySite("hub", "hub")
	w.applyPool("pool", ports)
	w.applyInstrument("camera", first, "")
	g := w.gateway("pool", "pool-0")
	g.awaitPort("camera", first)
	stop := g.follow()
	defer stop()
	w.awaits("Instrument", "camera", "Ready", "True/Ready")
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	d := wire.DamageOf("camera", wire.Record{ID: "o/hub/camera/r/x", Key: "o/hub/camera/r/x", Size: 5, ReceivedAt: at}, wire.DamageMissing, "pool-0", at)
	d.Confirmed = true
	data, err := d.Encode()
	if err == nil {
		err = g.put(wire.StatusBucket("hub"), wire.DamageKey("camera", d.ID), data)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := w.awaits("Instrument", "camera", "ArchiveIntact", "False/Damaged")
	says(t, c, d.ID, "1 of them missing", "substorm archive verify")

	kv, err := g.js.KeyValue(t.Context(), wire.StatusBucket("hub"))
	if err == nil {
		err = kv.Purge(t.Context(), wire.DamageKey("camera", d.ID))
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is whole again", func() error {
		var s v1alpha1.InstrumentStatus
		w.status("Instrument", "camera", &s)
		for _, c := range s.Conditions {
			if c.Type == v1alpha1.ConditionArchiveIntact {
				return fmt.Errorf("%+v", c)
			}
		}
		return nil
	})
}
