// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

type leased struct{}

func (leased) Check() error { return nil }

// If bytes of an object are found again while its purge waits for partners, they are added to that purge: the user who
// asked and the partners that confirmed stay, and the bytes are removed.
func TestFoundAgainWhileItWaits(t *testing.T) {
	js := testenv.NATS(t, testenv.NATSOptions{}).JetStream(t)
	testenv.CreateSite(t, js, "thule")
	cursors, err := js.KeyValue(t.Context(), wire.CursorBucket("thule"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Base: holder.Base{Site: "thule", Lease: leased{}}, Metrics: NewMetrics(prometheus.NewRegistry())}
	w := &Writer{cfg: cfg, cursors: cursors}
	s := &Sweeper{cfg: SweepConfig{Base: holder.Base{Site: cfg.Site, JetStream: js, Lease: cfg.Lease}, Metrics: cfg.Metrics}, cursors: cursors}
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	of := dayKey{"allsky-1", "2026-11-20"}
	asked := wire.Removal{Instrument: of.instrument, Day: of.day, ID: "o/thule/allsky-1/n/a", Reason: "private", By: "anna", At: at}
	write := func(r wire.Removal) {
		t.Helper()
		w.removals = append(w.removals, r)
		if err := w.saveRemovals(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, want wire.Removal) {
		t.Helper()
		e, err := cursors.Get(t.Context(), asked.Key())
		if err != nil {
			t.Fatal(err)
		}
		got, err := wire.Decode[wire.Removal](e.Value())
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", what, err, diff)
		}
	}
	found := func(key string) wire.Removal {
		return wire.Removal{Instrument: of.instrument, Day: of.day, ID: asked.ID, Found: key, Reason: "again", By: wire.ArchivistWriter, At: at.Add(time.Hour)}
	}

	write(asked)
	want("asked", asked)
	asked.Confirmed = map[string]time.Time{"madrigal": at}
	value, err := wire.Encode(asked)
	if err == nil {
		_, err = cursors.Put(t.Context(), asked.Key(), value)
	}
	if err != nil {
		t.Fatal(err)
	}
	write(found("packs/thule/1.tar")) // out of a spool
	asked.Found = "packs/thule/1.tar"
	want("found by the writer", asked)
	for range 2 {
		if err := s.removeAgain(t.Context(), of, asked.ID, "packs/thule/2.tar"); err != nil {
			t.Fatal(err)
		}
	}
	asked.Found = "packs/thule/2.tar"
	want("found by the sweep", asked)
	if n := testutil.ToFloat64(cfg.Metrics.found.WithLabelValues(findingPurged)); n != 1 {
		t.Errorf("the sweep counts %v", n)
	}
	later := asked
	later.Found, later.Confirmed, later.By, later.At = "", nil, "ben", at.Add(2*time.Hour)
	write(later)
	want("asked once more", asked)

	// The reverse order: a user requests the removal of what was found.
	if err := cursors.Delete(t.Context(), asked.Key()); err != nil {
		t.Fatal(err)
	}
	write(found("packs/thule/3.tar"))
	asked.Confirmed, asked.Found = nil, ""
	write(asked)
	asked.Found = "packs/thule/3.tar"
	want("asked after it was found", asked)
}

// The leader of the bucket is asked whether an original is to be removed: a replica may not know of the removal yet.
func TestRemovalIsAskedOfTheLeader(t *testing.T) {
	js := testenv.NATS(t, testenv.NATSOptions{}).JetStream(t)
	testenv.CreateSite(t, js, "thule")
	bucket := wire.CursorBucket("thule")
	cursors, err := js.KeyValue(t.Context(), bucket)
	if err != nil {
		t.Fatal(err)
	}
	// A copy that answers for the bucket, and has another key only.
	if _, err := cursors.Put(t.Context(), "other", nil); err != nil {
		t.Fatal(err)
	}
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "BEHIND", MirrorDirect: true, AllowDirect: true,
		Mirror: &jetstream.StreamSource{Name: "KV_" + bucket, FilterSubject: "$KV." + bucket + ".other"}})
	if err != nil {
		t.Fatal(err)
	}
	r := wire.Removal{Instrument: "allsky-1", Day: "2026-11-20", Reason: "expired", By: wire.ByRetention, At: time.Now().UTC()}
	value, err := wire.Encode(r)
	if err == nil {
		_, err = cursors.Create(t.Context(), r.Key(), value)
	}
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; { // until the copy answers
		if _, err := cursors.Get(t.Context(), r.Key()); errors.Is(err, jetstream.ErrKeyNotFound) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing that is behind answers: the test shows nothing")
		}
	}
	a := removed{js: js, bucket: bucket}
	duplicate := wire.Notice{Site: "thule", Instrument: r.Instrument, Record: wire.Record{
		DuplicateOf: wire.RawKey("thule", r.Instrument, time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), wire.Digest{})}}
	for range 100 {
		if is, err := a.removesOriginal(t.Context(), duplicate); !is || err != nil {
			t.Fatalf("its original is to be removed: %t, %v", is, err)
		}
	}
}
