// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// A writer that is restarted in the same process counts its refusals from one, and says that this
// is another count.
func TestRefusalsOfTwoWriters(t *testing.T) {
	js := testenv.NATS(t, testenv.NATSOptions{}).JetStream(t)
	testenv.CreateSite(t, js, "thule")
	status, err := js.KeyValue(t.Context(), wire.StatusBucket("thule"))
	if err != nil {
		t.Fatal(err)
	}
	incarnations := map[string]bool{}
	for range 2 {
		w := &Writer{cfg: Config{Base: holder.Base{Site: "thule", Incarnation: "one", JetStream: js, Log: slog.New(slog.DiscardHandler)}, Metrics: NewMetrics(prometheus.NewRegistry())}}
		q := wire.ArchiveRequest{Site: "thule", Instrument: "allsky-1", ID: "a", Action: wire.ActionPurge, By: "anna"}
		w.refusals.note(q, &refusal{refusedHold, "it is under legal hold"})
		w.tellRefusals(t.Context())
		e, err := status.Get(t.Context(), wire.RefusalStatusKey("allsky-1", wire.ArchivistWriter))
		if err != nil {
			t.Fatal(err)
		}
		got, err := wire.Decode[wire.RefusalStatus](e.Value())
		is := got.Changes[refusedHold]
		if err != nil || is.Count != 1 || is.ID != "a" || is.Asked != changePurged || is.By != "anna" || is.Why != "it is under legal hold" {
			t.Errorf("%+v, %v", got, err)
		}
		incarnations[got.Incarnation] = true
		time.Sleep(2 * time.Millisecond) // an incarnation is the millisecond in which it begins
	}
	if len(incarnations) != 2 {
		t.Errorf("incarnations %v", incarnations)
	}
}
