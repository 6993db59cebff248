// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// Damage that the scrub found is a condition of its Instrument until the archive is whole again.
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
	data, err := wire.Encode(d)
	if err == nil {
		err = g.put(wire.StatusBucket("hub"), wire.DamageKey("camera", d.ID), data)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := w.awaits("Instrument", "camera", "ArchiveIntact", "False/Damaged")
	says(t, c, d.ID, "1 of them missing", "substorm archive verify")

	// The Site's status says how much is damaged, and when the archivist last looked.
	ended := at.Add(time.Hour)
	report, err := wire.Encode(wire.ScrubStatus{ReportedAt: at, LastPass: &wire.ScrubPass{BegunAt: at, EndedAt: &ended, Objects: 7},
		Pass: &wire.ScrubPass{BegunAt: ended, Instrument: "camera", Day: "2026-11-20", Objects: 3}})
	if err == nil {
		err = w.archivistReports(wire.ScrubStatusKey, report)
	}
	if err != nil {
		t.Fatal(err)
	}
	archive := func(what string, as func(*v1alpha1.ArchiveState) bool) {
		t.Helper()
		eventually(t, what, func() error {
			var s v1alpha1.SiteStatus
			if w.status("Site", "hub", &s); s.Archive == nil || !as(s.Archive) {
				return fmt.Errorf("status.archive is %+v", s.Archive)
			}
			return nil
		})
	}
	archive("damage, and a pass", func(s *v1alpha1.ArchiveState) bool {
		return s.DamagedCount == 1 && s.MissingCount == 1 && s.LastPass != nil && s.LastPass.ObjectCount == 7 && s.LastPass.CompletionTime.Equal(&metav1.Time{Time: ended}) &&
			s.Pass != nil && s.Pass.Day == "2026-11-20"
	})

	kv, err := g.js.KeyValue(t.Context(), wire.StatusBucket("hub"))
	if err == nil {
		err = kv.Delete(t.Context(), wire.DamageKey("camera", d.ID))
	}
	if err != nil {
		t.Fatal(err)
	}
	archive("no damage", func(s *v1alpha1.ArchiveState) bool {
		return s.DamagedCount == 0 && s.MissingCount == 0 && s.LastPass != nil
	})
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

// archivistReports puts what the archivist reports.
func (w *world) archivistReports(key string, report []byte) error {
	kv, err := w.nats.JetStream(w.t).KeyValue(w.t.Context(), wire.StatusBucket("hub"))
	if err != nil {
		return err
	}
	_, err = kv.Put(w.t.Context(), key, report)
	return err
}
