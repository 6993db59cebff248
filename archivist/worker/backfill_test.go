// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/wire"
)

// line publishes a datagram that says itself when it was observed.
func (l *lab) line(instrument string, observed time.Time) {
	l.t.Helper()
	now := time.Now()
	text := observed.UTC().Format("2006-01-02T15:04:05.000Z") + ",1\n"
	m := nats.NewMsg(wire.ObservationSubject(l.site, instrument, channel))
	m.Data = wire.AppendDatagram(wire.AppendTelemetryHeader(nil, instrument, channel),
		wire.Datagram{ReceivedAt: now, Source: netip.MustParseAddrPort("192.0.2.7:40001"), Payload: []byte(text)})
	m.Header.Set(wire.HeaderID, "gateway-0/incarnation-1/"+text)
	m.Header.Set(wire.HeaderTime, wire.FormatTime(now))
	m.Header.Set(wire.HeaderDatagrams, "1")
	m.Header.Set(wire.HeaderDatagramBytes, fmt.Sprint(len(text)))
	if _, err := l.js.PublishMsg(l.t.Context(), m); err != nil {
		l.t.Fatal(err)
	}
}

// backfilled counts an instrument's records of backfill, by the metric.
func backfilled(t *testing.T, g prometheus.Gatherer, instrument string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "substorm_manifest_backfill_records_total" && m.GetLabel()[0].GetValue() == instrument {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// A segment whose newest sample was observed longer ago than cadence.lateAfter is backfill: its
// manifest and its notice say so, on the subject of such notices, also after the stream was
// recreated. One that holds anything newer is not.
func TestBackfill(t *testing.T) {
	l := start(t).site(t, "thule")
	csv := wire.ChannelEntry{Name: "x", Datagrams: channel, Payload: wire.PayloadEntry{Type: wire.PayloadCSV, Separator: ","},
		Time:       wire.ChannelTimeEntry{Source: wire.TimePayload, Format: wire.TimeISO8601, Columns: []int{1}, Precision: wire.PrecisionMilliseconds},
		Parameters: []wire.ParameterEntry{{Name: "x", Type: wire.ParameterDouble, Column: 2}}}
	lateAfter := 6 * time.Hour
	for _, name := range []string{mag, "mag-2", "mag-3"} {
		l.settings[name] = wire.InstrumentEntry{Instrument: name, SegmentAgeMillis: 300, SegmentSize: 1 << 20,
			LateAfterMillis: lateAfter.Milliseconds(), Channels: []wire.ChannelEntry{csv}}
	}
	now := time.Now()
	l.line(mag, now.Add(-lateAfter-time.Hour))
	l.line("mag-2", now.Add(-lateAfter+time.Hour))
	l.line("mag-3", now.Add(-lateAfter-time.Hour))
	l.line("mag-3", now.Add(-time.Second))
	cfg := l.config("a")
	l.run(cfg)
	for name, want := range map[string]bool{mag: true, "mag-2": false, "mag-3": false} {
		l.await("the segment of "+name+" is listed", func() bool { return len(l.listed(name)) == 1 })
		if r := l.listed(name)[0]; r.Backfill != want || r.TimeSource != wire.TimeSourcePayload {
			t.Errorf("%s: backfill is %v, want %v: %+v", name, r.Backfill, want, r)
		}
	}
	if n := backfilled(t, cfg.Metrics.(prometheus.Gatherer), mag); n != 1 {
		t.Errorf("the metric counts %v", n)
	}
	want := []string{wire.BackfillSubject(l.site, mag), wire.NoticeSubject(l.site, "mag-2"), wire.NoticeSubject(l.site, "mag-3")}
	announced := func() []string {
		var subjects []string
		for _, m := range l.noticeStream(wire.NoticeSubjects(l.site)) {
			subjects = append(subjects, m.Subject)
		}
		slices.Sort(subjects)
		return subjects
	}
	if got := announced(); !slices.Equal(got, want) {
		t.Errorf("notices on %q, want %q", got, want)
	}
	l.recreateNotices(nil)
	l.await("the notices are announced anew", func() bool { return slices.Equal(announced(), want) })
}
