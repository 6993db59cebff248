// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// The status of an Instrument has the progress of its copy, and the declaration reaches the gateways.
func TestCopyOfAnInstrument(t *testing.T) {
	w := newWorld(t)
	w.start()
	first, _, ports := w.ports()
	w.applySite("hub", "hub")
	w.applyPool("pool", ports)
	w.applyInstrument("camera", first, `, forward: {address: "old.example.org:5000", protocol: TCP, endTime: "2127-01-01T00:00:00Z"}`)
	g := w.gateway("pool", "pool-0")
	entry := g.awaitPort("camera", first)
	if entry.Forward == nil || entry.Forward.Address != "old.example.org:5000" || entry.Forward.Protocol != wire.ProtocolTCP || entry.Forward.Until.Year() != 2127 {
		t.Errorf("entry: %+v", entry.Forward)
	}
	stop := g.follow()
	defer stop()
	w.awaits("Instrument", "camera", "Ready", "True/Ready")
	said := wire.ForwardStatus{ReportedAt: time.Now(), Gateway: "pool-0", Address: "old.example.org:5000",
		Sent: wire.ForwardTotals{Items: 40}, Backlog: wire.ForwardTotals{Items: 12, Bytes: 12000}, LastError: "connection refused"}
	data, err := wire.Encode(said)
	if err == nil {
		err = w.archivistReports(wire.ForwardStatusKey("camera"), data)
	}
	if err != nil {
		t.Fatal(err)
	}
	objects := uint64(0)
	eventually(t, "the copy in status", func() error {
		objects++
		g.received("camera", 0, objects) // figures come with what changes, or within a minute
		var s v1alpha1.InstrumentStatus
		w.status("Instrument", "camera", &s)
		want := v1alpha1.ForwardStatus{Address: "old.example.org:5000", SentCount: 40, BacklogCount: 12, BacklogBytes: 12000, LastError: "connection refused"}
		if s.Forward == nil || *s.Forward != want {
			return fmt.Errorf("got %+v", s.Forward)
		}
		return nil
	})
}
