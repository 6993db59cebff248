// SPDX-License-Identifier: Apache-2.0

package dayclose

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/manifest/manifesttest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const site = "thule"

func TestHorizon(t *testing.T) {
	latest := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	early, late := latest.Add(-5*time.Hour), latest.Add(20*time.Hour)
	spool := func(at *time.Time, objects int64) *wire.SpoolStatus {
		return &wire.SpoolStatus{Objects: objects, Oldest: at}
	}
	for name, c := range map[string]struct {
		reports []wire.GatewayStatus
		want    time.Time
		says    string
	}{
		"no gateway":                             {nil, latest, ""},
		"an empty spool":                         {[]wire.GatewayStatus{{Gateway: "a", ReportedAt: late, Spool: spool(nil, 0)}}, latest, ""},
		"no spool at all":                        {[]wire.GatewayStatus{{Gateway: "a", ReportedAt: late}}, latest, ""},
		"what waits came later":                  {[]wire.GatewayStatus{{Gateway: "a", ReportedAt: late, Spool: spool(&late, 3)}}, latest, ""},
		"what waits came before":                 {[]wire.GatewayStatus{{Gateway: "a", ReportedAt: late, Spool: spool(&early, 3)}}, early, "a holds 3 objects"},
		"it does not say when":                   {[]wire.GatewayStatus{{Gateway: "a", ReportedAt: late, Spool: spool(nil, 3)}}, time.Time{}, "a holds 3 objects"},
		"a pod that ended with its final report": {[]wire.GatewayStatus{{Gateway: "a", ReportedAt: early, Stopped: true, Spool: spool(nil, 0)}}, latest, ""},
		"one that ended with a full spool":       {[]wire.GatewayStatus{{Gateway: "a", ReportedAt: late, Stopped: true, Spool: spool(&early, 1)}}, early, "a holds 1 objects"},
		"one that is gone without a word":        {[]wire.GatewayStatus{{Gateway: "a", ReportedAt: early, Spool: spool(nil, 0)}}, early, "a has not reported"},
		"one that keeps copies for another":      {[]wire.GatewayStatus{{Gateway: "a", ReportedAt: late, Copies: []wire.CopiesStatus{{Owner: "b", Objects: 2, Oldest: &early}}}}, early, "in the spool of b"},
		"the earliest counts": {[]wire.GatewayStatus{{Gateway: "a", ReportedAt: early, Spool: spool(nil, 0)},
			{Gateway: "b", ReportedAt: early.Add(-time.Hour)}}, early.Add(-time.Hour), "b has not reported"},
	} {
		got, says := Horizon(latest, c.reports)
		if !got.Equal(c.want) || !strings.Contains(says, c.says) || says != "" && c.says == "" {
			t.Errorf("%s: %s %q, want %s %q", name, got, says, c.want, c.says)
		}
	}
}

type lab struct{ *manifesttest.Archive }

func start(t *testing.T) *lab {
	t.Helper()
	return &lab{manifesttest.New(t, site)}
}

func (l *lab) closer() *Closer {
	return New(Config{
		Base:  holder.Base{Site: site, Pod: "gateway-0", Incarnation: "one", JetStream: l.JetStream, Store: l.Store, Lease: manifesttest.Lease{Store: l.Store}, Log: slog.New(slog.DiscardHandler)},
		Agree: func(context.Context, time.Time) error { return nil }, Metrics: NewMetrics(prometheus.NewRegistry()),
	})
}

func (l *lab) pass(c *Closer, at time.Time) wire.LedgerStatus {
	l.Helper()
	if err := c.pass(l.Context(), at); err != nil {
		l.Fatal(err)
	}
	kv, err := l.JetStream.KeyValue(l.Context(), wire.StatusBucket(site))
	if err != nil {
		l.Fatal(err)
	}
	e, err := kv.Get(l.Context(), wire.LedgerStatusKey)
	if err != nil {
		l.Fatal(err)
	}
	status, err := wire.Decode[wire.LedgerStatus](e.Value())
	if err != nil {
		l.Fatal(err)
	}
	if c.ClosedTo() != status.ClosedTo {
		l.Errorf("ClosedTo says %q, the report %q", c.ClosedTo(), status.ClosedTo)
	}
	return status
}

func (l *lab) put(bucket, key string, value []byte, err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
	if _, err := l.KV(bucket).Put(l.Context(), key, value); err != nil {
		l.Fatal(err)
	}
}

// received is what a gateway counts of a day.
func (l *lab) received(instrument string, day wire.Day, objects uint64) {
	l.Helper()
	l.receivedBy("one", instrument, day, objects)
}

func (l *lab) receivedBy(incarnation, instrument string, day wire.Day, objects uint64) {
	l.Helper()
	value, err := wire.Encode(wire.LedgerEntry{Incarnations: map[string]wire.Totals{incarnation: {Objects: objects}}})
	l.put(wire.LedgerBucket(site), wire.LedgerKey(instrument, day, wire.StepReceived, "gateway-0"), value, err)
}

func (l *lab) reports(s wire.GatewayStatus) {
	l.Helper()
	value, err := wire.Encode(s)
	l.put(wire.StatusBucket(site), wire.GatewayStatusKey(s.Gateway), value, err)
}

// closed returns a version of a day, by key, and false if there is none.
func (l *lab) closed(kind wire.DayKind, day wire.Day, version int) (map[string]string, bool) {
	l.Helper()
	body, _, err := l.Store.Get(l.Context(), wire.DayFileKey(kind, site, day, version), objectstore.All)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, false
	}
	if err != nil {
		l.Fatal(err)
	}
	defer body.Close()
	f, err := wire.DecodeDayFile(body)
	if err != nil {
		l.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range f.Entries {
		all[e.Key] = string(e.Value)
	}
	return all, true
}

// TestClosing: a day is closed when no spool holds any of it, is opened by what comes
// late, and closed again once, whatever happens between.
func TestClosing(t *testing.T) {
	l := start(t)
	now := time.Now().UTC()
	first, second, today := wire.DayOf(now.AddDate(0, 0, -4)), wire.DayOf(now.AddDate(0, 0, -2)), wire.DayOf(now)
	l.received("allsky-1", first, 3)
	l.received("mag-1", first, 5)
	l.received("allsky-1", second, 7)
	l.received("allsky-1", today, 9)
	oldest, err := second.Start()
	if err != nil {
		t.Fatal(err)
	}
	oldest = oldest.Add(time.Hour)
	spooling := wire.GatewayStatus{Gateway: "gateway-0", ReportedAt: now, Spool: &wire.SpoolStatus{Objects: 1, Oldest: &oldest}}
	l.reports(spooling)

	status := l.pass(l.closer(), now)
	if before := wire.DayOf(oldest.AddDate(0, 0, -1)); status.ClosedTo != before || !strings.Contains(status.WaitsFor, "gateway-0 holds 1 objects") {
		t.Errorf("while a spool holds of it: %+v, want closed to %s", status, before)
	}
	got, _ := l.closed(wire.KindLedger, first, 1)
	if len(got) != 2 || !strings.Contains(got[wire.LedgerKey("mag-1", first, wire.StepReceived, "gateway-0")], `"objects":5`) {
		t.Errorf("closed: %v", got)
	}
	if _, there := l.closed(wire.KindLedger, second, 1); there {
		t.Error("a day is closed of which a spool holds something")
	}

	// The spool is empty; the closer that finds it does not know the one before.
	spooling.Spool = &wire.SpoolStatus{}
	l.reports(spooling)
	c := l.closer()
	if status := l.pass(c, now); status.ClosedTo != second || status.WaitsFor != "" {
		t.Errorf("once it is empty: %+v, want closed to %s", status, second)
	}
	if _, there := l.closed(wire.KindLedger, today, 1); there {
		t.Error("today is closed")
	}

	// Something comes late: the day is open until nothing came for a while.
	l.received("allsky-1", first, 4)
	status = l.pass(c, now)
	if before := wire.DayOf(now.AddDate(0, 0, -5)); status.ClosedTo != before || !slices.Equal(status.Reopened, []wire.Day{first}) {
		t.Errorf("reopened: %+v, want closed to %s", status, before)
	}
	if _, there := l.closed(wire.KindLedger, first, 2); there {
		t.Error("closed again at once")
	}
	if status = l.pass(c, now.Add(2*time.Hour)); status.ClosedTo < second || len(status.Reopened) > 0 {
		t.Errorf("closed again: %+v, want closed to %s", status, second)
	}
	got, _ = l.closed(wire.KindLedger, first, 2)
	if !strings.Contains(got[wire.LedgerKey("allsky-1", first, wire.StepReceived, "gateway-0")], `"objects":4`) {
		t.Errorf("version 2: %v", got)
	}
	if was, _ := l.closed(wire.KindLedger, first, 1); !strings.Contains(was[wire.LedgerKey("allsky-1", first, wire.StepReceived, "gateway-0")], `"objects":3`) {
		t.Errorf("version 1 is another now: %v", was)
	}
}

// TestKilledBeforeItsCursor: a closer that closed a day and was killed before it wrote so closes
// nothing twice; nor does one that reads a bucket that was recreated with the same entries.
func TestKilledBeforeItsCursor(t *testing.T) {
	l := start(t)
	now := time.Now().UTC()
	day := wire.DayOf(now.AddDate(0, 0, -3))
	l.received("allsky-1", day, 3)
	l.pass(l.closer(), now)
	cursors, err := l.JetStream.KeyValue(t.Context(), wire.CursorBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	if err := cursors.Delete(t.Context(), wire.ClosingCursorKey(wire.KindLedger)); err != nil {
		t.Fatal(err)
	}
	if status := l.pass(l.closer(), now.Add(3*time.Hour)); status.ClosedTo < day {
		t.Errorf("got %+v", status)
	}
	if _, there := l.closed(wire.KindLedger, day, 1); !there {
		t.Error("no version 1")
	}
	if _, there := l.closed(wire.KindLedger, day, 2); there {
		t.Error("the same was closed twice")
	}
	// Two closers at a time: the second learns it from the cursor.
	a, b := l.closer(), l.closer()
	l.pass(a, now)
	l.pass(b, now)
	l.received("mag-1", day, 1)
	l.pass(a, now.Add(2*time.Hour))
	if err := b.pass(t.Context(), now.Add(2*time.Hour)); !errors.Is(err, stream.ErrConflict) {
		t.Errorf("the second: %v", err)
	}
}

// TestClosingGaps: days of gaps are closed as those of the ledger.
func TestClosingGaps(t *testing.T) {
	l := start(t)
	now := time.Now().UTC()
	day := wire.DayOf(now.AddDate(0, 0, -3))
	value, err := wire.Encode(wire.DayGaps{Due: 7})
	l.put(wire.GapsBucket(site), wire.GapsKey("allsky-1", day), value, err)
	l.pass(l.closer(), now)
	if got, _ := l.closed(wire.KindGaps, day, 1); !strings.Contains(got[wire.GapsKey("allsky-1", day)], `"due":7`) {
		t.Errorf("got %v", got)
	}
	// A Site that an older operator made has no such bucket.
	if err := l.JetStream.DeleteKeyValue(t.Context(), wire.GapsBucket(site)); err != nil {
		t.Fatal(err)
	}
	l.received("allsky-1", day, 3)
	if status := l.pass(l.closer(), now); status.ClosedTo < day {
		t.Errorf("without the bucket: %+v", status)
	}
}

// TestCursorsLostAlone: where only the cursors are lost, the ledger stands as it is, also
// where a count is less than when its day was closed: a duplicate whose original is gone is
// none any more.
func TestCursorsLostAlone(t *testing.T) {
	l := start(t)
	now := time.Now().UTC()
	day := wire.DayOf(now.AddDate(0, 0, -5))
	key := wire.LedgerKey("allsky-1", day, wire.StepDuplicates, wire.ArchivistWriter)
	l.received("allsky-1", day, 10)
	duplicates := func(n uint64) {
		t.Helper()
		value, err := wire.Encode(wire.LedgerEntry{Incarnations: map[string]wire.Totals{"manifest": {Objects: n}}})
		l.put(wire.LedgerBucket(site), key, value, err)
	}
	duplicates(5)
	l.pass(l.closer(), now)
	if _, there := l.closed(wire.KindLedger, day, 1); !there {
		t.Fatal("the day is not closed")
	}
	duplicates(4)
	if err := l.JetStream.DeleteKeyValue(t.Context(), wire.CursorBucket(site)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.JetStream.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: wire.CursorBucket(site)}); err != nil {
		t.Fatal(err)
	}
	l.pass(l.closer(), now.Add(2*time.Hour))
	e, err := l.KV(wire.LedgerBucket(site)).Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if entry, err := wire.Decode[wire.LedgerEntry](e.Value()); err != nil || entry.Sum().Objects != 4 {
		t.Errorf("%d duplicates, want 4: %v", entry.Sum().Objects, err)
	}
	if second, _ := l.closed(wire.KindLedger, day, 2); !strings.Contains(second[key], `"objects":4`) {
		t.Errorf("version 2: %v", second)
	}
}

// TestMadeAnew: a bucket that was lost gets back what closed days hold, regardless of what was
// written into it since, and the next version of a day replaces those before.
func TestMadeAnew(t *testing.T) {
	l := start(t)
	now := time.Now().UTC()
	day := wire.DayOf(now.AddDate(0, 0, -3))
	l.received("allsky-1", day, 3)
	l.received("mag-1", day, 5)
	value, err := wire.Encode(wire.DayGaps{Due: 7})
	l.put(wire.GapsBucket(site), wire.GapsKey("allsky-1", day), value, err)
	c := l.closer()
	l.pass(c, now)
	for _, bucket := range []string{wire.LedgerBucket(site), wire.GapsBucket(site)} {
		if err := l.JetStream.DeleteKeyValue(t.Context(), bucket); err != nil {
			t.Fatal(err)
		}
		if _, err := l.JetStream.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: bucket}); err != nil {
			t.Fatal(err)
		}
	}
	l.receivedBy("two", "mag-1", day, 2) // by a gateway whose volume is new
	l.received("sonde", day, 1)

	held := func(instrument string) uint64 {
		t.Helper()
		kv, err := l.JetStream.KeyValue(t.Context(), wire.LedgerBucket(site))
		if err != nil {
			t.Fatal(err)
		}
		e, err := kv.Get(t.Context(), wire.LedgerKey(instrument, day, wire.StepReceived, "gateway-0"))
		if err != nil {
			t.Fatalf("%s: %v", instrument, err)
		}
		entry, err := wire.Decode[wire.LedgerEntry](e.Value())
		if err != nil {
			t.Fatal(err)
		}
		return entry.Sum().Objects
	}
	later := now.Add(2 * time.Hour)
	for _, closer := range []*Closer{c, l.closer()} { // the one that lived on, and its successor
		if status := l.pass(closer, later); status.ClosedTo < day || len(status.Reopened) > 0 {
			t.Errorf("closed: %+v", status)
		}
		for instrument, want := range map[string]uint64{"allsky-1": 3, "mag-1": 7, "sonde": 1} {
			if got := held(instrument); got != want {
				t.Errorf("%s: %d objects are in the bucket, want %d", instrument, got, want)
			}
		}
	}
	got, _ := l.closed(wire.KindLedger, day, 2)
	if len(got) != 3 || !strings.Contains(got[wire.LedgerKey("allsky-1", day, wire.StepReceived, "gateway-0")], `"objects":3`) ||
		!strings.Contains(got[wire.LedgerKey("mag-1", day, wire.StepReceived, "gateway-0")], `"objects":5`) {
		t.Errorf("version 2: %v", got)
	}
	if _, there := l.closed(wire.KindLedger, day, 3); there {
		t.Error("the same was closed twice")
	}
	kv, err := l.JetStream.KeyValue(t.Context(), wire.GapsBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	if e, err := kv.Get(t.Context(), wire.GapsKey("allsky-1", day)); err != nil || string(e.Value()) != string(value) {
		t.Errorf("gaps: %v, %v", e, err)
	}
}
