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

// The times that an instrument states are reported once they are not believed, and once they are again, also by a writer
// that began in between.
func TestClocks(t *testing.T) {
	js := testenv.NATS(t, testenv.NATSOptions{Unsynced: true}).JetStream(t)
	testenv.CreateSite(t, js, "thule")
	status, err := js.KeyValue(t.Context(), wire.StatusBucket("thule"))
	if err != nil {
		t.Fatal(err)
	}
	w := func() *Writer {
		w := &Writer{cfg: Config{Base: holder.Base{Site: "thule", Incarnation: "one", JetStream: js, Log: slog.New(slog.DiscardHandler)}, Metrics: NewMetrics(prometheus.NewRegistry())}}
		if err := w.loadSaid(t.Context()); err != nil {
			t.Fatal(err)
		}
		return w
	}
	noon := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	notice := func(instrument string, received, observed time.Time) *wire.Notice {
		return &wire.Notice{Site: "thule", Instrument: instrument, Record: wire.Record{ReceivedAt: received, ObservedFrom: &observed, ObservedTo: &observed}}
	}
	rolled := noon.AddDate(0, 0, -7*1024)
	first := w()
	first.clocks.note(notice("gps", noon, rolled))
	first.clocks.note(notice("other", noon, noon))
	segment := notice("segment", noon, noon)
	segment.Doubted = &wire.TimeSpan{From: time.Unix(0, 0), To: noon.Add(48 * time.Hour)}
	first.clocks.note(segment)
	imported := notice("gps", noon.Add(time.Hour), noon)
	imported.Gateway = wire.ImportWriter
	first.clocks.note(imported) // it is no evidence of the clock now
	first.reportInstruments(t.Context())
	read := func(instrument string) (s wire.ClockStatus) {
		t.Helper()
		e, err := status.Get(t.Context(), wire.ClockStatusKey(instrument))
		if err == nil {
			s, err = wire.Decode[wire.ClockStatus](e.Value())
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := read("gps"); !s.DoubtedAt.Equal(noon) || time.Duration(s.Offset) != noon.Sub(rolled) || s.Doubted != 1 || s.BelievedAt != nil {
		t.Errorf("%+v", s)
	}
	if s := read("segment"); time.Duration(s.Offset) != -48*time.Hour {
		t.Errorf("a clock that is ahead: %+v", s)
	}
	if _, err := status.Get(t.Context(), wire.ClockStatusKey("other")); err == nil {
		t.Error("an instrument whose times are believed is reported")
	}
	second := w()
	second.clocks.note(notice("gps", noon.Add(-time.Minute), noon)) // it was received before
	second.clocks.note(notice("gps", noon.Add(time.Minute), noon))
	second.clocks.note(notice("gps", noon.Add(2*time.Minute), noon))
	second.reportInstruments(t.Context())
	if s := read("gps"); s.BelievedAt == nil || !s.BelievedAt.Equal(noon.Add(time.Minute)) || s.Doubted != 1 {
		t.Errorf("%+v", s)
	}
}
