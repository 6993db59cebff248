// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// A day with many more objects than the archivist may remember: it holds no more
// than it may, and lists each object once, whenever its notice comes again.
func TestMoreObjectsThanMemory(t *testing.T) {
	l := start(t).site(t, "thule")
	l.settings["twins"] = wire.InstrumentEntry{} // equal objects are real
	midnight := time.Now().UTC().Truncate(24 * time.Hour).Add(-24 * time.Hour)
	const slots, perSlot = 100, 60
	var notices []wire.Notice
	for i := range slots * perSlot { // six every minute, for more than 16 hours
		notices = append(notices, l.notice("twins", object{midnight.Add(time.Duration(i) * 10 * time.Second), fmt.Sprint("frame ", i)}))
	}
	l.announceAll(notices, "")

	cfg := l.config("a")
	cfg.Memory = 1 // as little as there can be: space for 1,310 identities
	registry := prometheus.NewRegistry()
	cfg.Metrics = registry
	l.run(cfg)
	l.await("all are listed", func() bool { return len(l.listed("twins")) == len(notices) })

	var again []wire.Notice
	for i := 0; i < len(notices); i += perSlot * 7 { // of minutes long forgotten, out of order
		again = append(again, notices[len(notices)-1-i], notices[i])
	}
	l.announceAll(again, "again ")
	late := l.notice("twins", object{midnight.Add(time.Hour + time.Second), "late"})
	forgotten := l.putObject("twins", object{midnight.Add(2*time.Hour + time.Second), "never announced"})
	l.announce(late)
	l.await("the late and the forgotten one are listed", func() bool { return len(l.listed("twins")) == len(notices)+2 })

	lines := l.lines("twins", wire.DayOf(midnight))
	if len(lines) != len(notices)+2 || !slices.Contains(lines, late.ID) || !slices.Contains(lines, forgotten.ID) {
		t.Errorf("the parts have %d lines, want one for each of %d objects", len(lines), len(notices)+2)
	}
	held, reread := gathered(t, registry, "substorm_manifest_identities"), gathered(t, registry, "substorm_manifest_rereads_total")
	if held == 0 || held > 1310 || reread == 0 {
		t.Errorf("it holds %v identities, at most 1310 are allowed, and read forgotten minutes again %v times", held, reread)
	}
}

// announceAll announces many; with a prefix of their ids, so that JetStream takes
// them although it had them.
func (l *lab) announceAll(notices []wire.Notice, prefix string) {
	l.t.Helper()
	for i, n := range notices {
		m, err := stream.NoticeMessage(n, "gateway-0")
		if err != nil {
			l.t.Fatal(err)
		}
		if prefix != "" {
			m.Header.Set(jetstream.MsgIDHeader, prefix+n.MessageID())
		}
		if _, err := l.js.PublishMsgAsync(m); err != nil {
			l.t.Fatal(err)
		}
		if (i+1)%1000 == 0 || i == len(notices)-1 {
			<-l.js.PublishAsyncComplete()
		}
	}
}

// lines returns the ids of all lines in a day's parts.
func (l *lab) lines(instrument string, day wire.Day) []string {
	l.t.Helper()
	files, err := manifest.List(l.t.Context(), l.store, l.site, instrument, day)
	if err != nil {
		l.t.Fatal(err)
	}
	var ids []string
	for r, err := range files.Lines(l.t.Context(), l.store) {
		if err != nil {
			l.t.Fatal(err)
		}
		ids = append(ids, r.ID)
	}
	return ids
}

// gathered returns the value of a metric without labels.
func gathered(t *testing.T, g prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == name })
	if i < 0 {
		t.Fatalf("there is no metric %s", name)
	}
	m := families[i].GetMetric()[0]
	return m.GetGauge().GetValue() + m.GetCounter().GetValue()
}
