// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"crypto/sha256"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/names"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// TestObservationTime sends objects whose names state when they were observed, to the store and to the spool: notices
// and the objects' metadata say so, late objects are backfill, and a time that no clock can have shown is ignored.
func TestObservationTime(t *testing.T) {
	t.Parallel()
	for _, acknowledge := range []string{"Stored", spooledOnly} {
		t.Run(acknowledge, func(t *testing.T) {
			t.Parallel()
			lab := newLab(t, enough)
			lab.claimNames(t)
			l := lab.start(t, t.TempDir(), "one", acknowledge)
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
				now.Format("20060102/1504.jpg"):                        day(now),
				now.Add(-30 * time.Minute).Format("20060102/1504.jpg"): day(now.Add(-30 * time.Minute)),
				now.Add(-48 * time.Hour).Format("20060102/1504.jpg"):   late,
				now.Add(23 * time.Hour).Format("20060102/1504.jpg"):    day(now.Add(23 * time.Hour)),
				now.Add(25 * time.Hour).Format("20060102/1504.jpg"):    {source: wire.TimeSourceReceived},
				now.AddDate(0, 0, -365).Format("20060102/1504.jpg"):    {wire.TimeSourceName, now.AddDate(0, 0, -365), now.AddDate(0, 0, -365).Add(time.Minute - 1), true},
				now.AddDate(0, 0, -367).Format("20060102/1504.jpg"):    {source: wire.TimeSourceReceived},
				"19700101/0000.jpg": {source: wire.TimeSourceReceived},
				"frame.jpg":         {source: wire.TimeSourceReceived},
				"":                  {source: wire.TimeSourceReceived},
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
			if got := testutil.ToFloat64(l.Archive.metrics.unknownTimes.WithLabelValues("camera")); got != 5 {
				t.Errorf("of %v objects the name does not tell when, want 5", got)
			}
		})
	}
}

// TestObservationTimeOfWhatIsRestored sends an object again that the store lost, when names have the time of observation:
// its metadata say what its manifest says of it, and what its notice said if no manifest lists it yet.
func TestObservationTimeOfWhatIsRestored(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Minute)
	name, received := now.Add(-48*time.Hour).Format("20060102/1504.jpg"), now.Add(-48*time.Hour+10*time.Minute)
	data := []byte("frame")
	first := wire.Record{Name: name, Size: int64(len(data)), Digest: sha256.Sum256(data), State: wire.StateCurrent, ReceivedAt: received,
		TimeSource: wire.TimeSourceReceived, Completeness: wire.CompletenessVerified, Gateway: "north-0", Incarnation: "zero", Backfill: true}
	first.ID = wire.NamedKey("hub", "camera", name, 1)
	first.Key = first.ID
	told := first
	told.Backfill = false
	told.SetObserved(now.Add(-48*time.Hour), time.Minute)
	for is, want := range map[string]wire.Record{"listed": first, "not listed": told} {
		t.Run(is, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, enough)
			var err error
			l.camera, err = intake.NewInstrument(wire.InstrumentEntry{Instrument: "camera", MaxObjectSize: 1 << 20, MaxConnections: 1, MediaType: "image/jpeg",
				LateAfterMillis: time.Hour.Milliseconds(), ObservationName: "{year}{month}{day}/{hour}{minute}.jpg"})
			if err != nil {
				t.Fatal(err)
			}
			if is == "listed" {
				l.list(t, first)
			}
			o, err := l.receive(t, data)
			if err != nil {
				t.Fatal(err)
			}
			defer o.release()
			o.Describe(name, "")
			o.Whole(wire.CompletenessVerified)
			o.readObservationTime()
			held := names.Held{NameVersion: wire.NameVersion{Version: 1, Digest: first.Digest, Size: first.Size, Key: first.Key,
				ReceivedAt: received, Gateway: first.Gateway, Incarnation: first.Incarnation, Announced: true}}
			n := o.notice(o.receivedAt, first.Digest)
			setVersion(&n, held)
			if _, is, err := o.duplicate(t.Context(), n, held, decide(o.facts())); err != nil || is != whole {
				t.Fatalf("%v, %v", is, err)
			}
			stored, err := l.lookUp(t.Context(), wire.Notice{Site: "hub", Instrument: "camera", Record: first})
			if err != nil || !sameRecordTimes(stored.Record, want) {
				t.Errorf("metadata say %+v, want %+v: %v", stored.Record, want, err)
			}
		})
	}
}

// list writes the first part of a day's manifest, as an archivist does.
func (l *lab) list(t *testing.T, r wire.Record) {
	t.Helper()
	day := wire.DayOf(r.ReceivedAt)
	data, err := wire.Manifest{Header: wire.ManifestHeader{Site: "hub", Instrument: "camera", Day: day}, Records: []wire.Record{r}}.Encode()
	if err == nil {
		err = l.objects.Put(t.Context(), wire.ManifestPartKey("hub", "camera", day, 1), bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func sameRecordTimes(a, b wire.Record) bool {
	same := func(x, y *time.Time) bool { return x == nil && y == nil || x != nil && y != nil && x.Equal(*y) }
	return a.TimeSource == b.TimeSource && a.Backfill == b.Backfill && same(a.ObservedFrom, b.ObservedFrom) && same(a.ObservedTo, b.ObservedTo)
}
