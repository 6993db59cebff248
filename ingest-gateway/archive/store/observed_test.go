// SPDX-License-Identifier: Apache-2.0

package store

import (
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/internal/wire"
)

// TestObservationTime sends objects whose names tell when they were observed, to the store and to the spool: notices and
// the objects' metadata say so, and what came late is backfill.
func TestObservationTime(t *testing.T) {
	t.Parallel()
	for _, acknowledge := range []string{"Stored", spooledOnly} {
		t.Run(acknowledge, func(t *testing.T) {
			t.Parallel()
			lab := newLab(t, enough)
			lab.claimNames(t)
			l := lab.live(t, t.TempDir(), "one", acknowledge)
			var err error
			l.camera, err = intake.NewInstrument(wire.InstrumentEntry{
				Instrument: "camera", MaxObjectSize: 1 << 20, MaxConnections: 1, MediaType: "image/jpeg", Acknowledge: acknowledge,
				LateAfterMillis: time.Hour.Milliseconds(), ObservationName: "{year}{month}{day}/{hour}{minute}.jpg", PackBelow: 1 << 10,
			})
			if err != nil {
				t.Fatal(err)
			}
			now := time.Now().UTC().Truncate(time.Minute)
			type observed struct {
				source   wire.TimeSource
				from, to time.Time
				backfill bool
			}
			day := func(at time.Time) observed {
				return observed{wire.TimeSourceName, at, at.Add(time.Minute - 1), false}
			}
			late := day(now.Add(-48 * time.Hour))
			late.backfill = true
			want := map[string]observed{
				now.Format("20060102/1504.jpg"):                      day(now),
				now.Add(-30 * time.Minute).Format("20060102/1504.jpg"): day(now.Add(-30 * time.Minute)),
				now.Add(-48 * time.Hour).Format("20060102/1504.jpg"):   late,
				now.Add(24 * time.Hour).Format("20060102/1504.jpg"):    day(now.Add(24 * time.Hour)),
				"frame.jpg": {source: wire.TimeSourceReceived},
				"":          {source: wire.TimeSourceReceived},
			}
			for name := range want {
				o := l.Begin(l.camera, netip.MustParseAddrPort("192.0.2.7:4000"), func() {})
				o.Describe(name, "")
				space, err := o.Space(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				o.Advance(space, copy(space, "frame "+name))
				if _, err := o.Keep(t.Context()); err != nil {
					t.Errorf("%q: %v", name, err)
				}
			}
			await(t, "all are announced", func() (bool, string) { return int(l.announced(t)) == len(want), "" })
			for _, n := range l.noticesIn(t) {
				got := observed{source: n.TimeSource, backfill: n.Backfill}
				if n.ObservedFrom != nil && n.ObservedTo != nil {
					got.from, got.to = *n.ObservedFrom, *n.ObservedTo
				}
				if got != want[n.Name] {
					t.Errorf("%q: %+v, want %+v", n.Name, got, want[n.Name])
				}
				if stored, err := l.lookUp(t.Context(), n); n.Name != "" && (err != nil || !sameRecordTimes(stored.Record, n.Record)) {
					t.Errorf("%q: metadata say %+v, the notice %+v: %v", n.Name, stored.Record, n.Record, err)
				}
			}
			if got := testutil.ToFloat64(l.Archive.metrics.unknownTimes.WithLabelValues("camera")); got != 2 {
				t.Errorf("of %v objects the name does not tell when, want 2", got)
			}
		})
	}
}

func sameRecordTimes(a, b wire.Record) bool {
	same := func(x, y *time.Time) bool { return x == nil && y == nil || x != nil && y != nil && x.Equal(*y) }
	return a.TimeSource == b.TimeSource && a.Backfill == b.Backfill && same(a.ObservedFrom, b.ObservedFrom) && same(a.ObservedTo, b.ObservedTo)
}
