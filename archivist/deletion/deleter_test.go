// SPDX-License-Identifier: Apache-2.0

package deletion

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/manifest/manifesttest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// An object is in a record before it is deleted, and an object that must stay is in no record. A process that dies in
// between leaves the rest to the next one.
func TestDelete(t *testing.T) {
	a := manifesttest.New(t, "thule")
	at := time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)
	pack, raw, named := wire.PackKey("thule", at, "gateway-0", "one", 1), wire.RawKey("thule", "camera", at, wire.Digest{1}), wire.NamedKey("thule", "camera", "a.fits", 1)
	staging := wire.StagingKey("thule", "camera", "1")
	hold := false
	metrics := NewMetrics(prometheus.NewRegistry())
	d := New(Config{
		Base:    holder.Base{Site: "thule", Pod: "gateway-1", Incarnation: "one", Store: a.Store, Lease: manifesttest.Lease{Store: a.Store}, Log: slog.New(slog.DiscardHandler)},
		Metrics: metrics, Held: func(string) string {
			if hold {
				return "it is under legal hold"
			}
			return ""
		},
	})
	objects := []Object{
		{Key: pack, Reason: wire.DeletedUnnamed, Day: "2026-11-18", KeptUntil: time.Unix(1, 0)},
		{Key: named, Reason: wire.DeletedPurged, Instrument: "camera", Takes: []string{"camera"}},
		{Key: raw, Reason: wire.DeletedMoved, Instrument: "camera", Instead: "packs/thule/x.tar"},
		{Key: staging, Reason: wire.DeletedStaging, KeptUntil: time.Unix(1, 0)},
	}
	for _, o := range objects {
		a.Put(o.Key, []byte("bytes"))
	}
	hold = true
	a.Store.KillAfter(2) // the record, and one object
	if _, err := d.Delete(t.Context(), time.Now(), objects...); !errors.Is(err, manifesttest.ErrKilled) {
		t.Fatalf("%v, want the kill", err)
	}
	a.Store.KillAfter(-1)
	if n := len(a.Keys(pack)) + len(a.Keys(raw)) + len(a.Keys(named)); n != 2 {
		t.Errorf("%d objects are left", n)
	}
	kept, err := d.Delete(t.Context(), time.Now(), objects[1:]...)
	if err != nil || len(kept) != 1 || kept[0].Key != named || kept[0].Why != KeptHold {
		t.Errorf("kept %v, %v", kept, err)
	}
	if n := len(a.Keys(raw)) + len(a.Keys(staging)); n != 0 || len(a.Keys(named)) != 1 {
		t.Errorf("%d objects are left that should be gone, %d that must stay", n, len(a.Keys(named)))
	}
	reasons := map[string]wire.DeletionReason{}
	for _, key := range a.Keys(wire.DeletionsPrefix("thule")) {
		body, _, err := a.Store.Get(t.Context(), key, objectstore.All)
		if err != nil {
			t.Fatal(err)
		}
		r, err := wire.DecodeDeletions(body)
		_ = body.Close()
		if err != nil || r.Header.Gateway != "gateway-1" || r.Header.At.IsZero() {
			t.Errorf("%s: %+v, %v", key, r.Header, err)
		}
		for _, o := range r.Objects {
			reasons[o.Key] = o.Reason
		}
	}
	if diff := cmp.Diff(map[string]wire.DeletionReason{pack: wire.DeletedUnnamed, raw: wire.DeletedMoved}, reasons); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
	if n := testutil.ToFloat64(metrics.deleted.WithLabelValues(string(wire.DeletedUnnamed))); n != 1 {
		t.Errorf("%v packs are counted", n)
	}
}

// An object that the store refuses to delete holds up no other. It is counted each time, logged and
// recorded once, and goes when the store lets it.
func TestRefused(t *testing.T) {
	a := manifesttest.New(t, "thule")
	var log bytes.Buffer
	metrics := NewMetrics(prometheus.NewRegistry())
	d := New(Config{
		Base:    holder.Base{Site: "thule", Pod: "gateway-1", Incarnation: "one", Store: a.Store, Lease: manifesttest.Lease{Store: a.Store}, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))},
		Metrics: metrics,
	})
	at := time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)
	stuck, other := wire.RawKey("thule", "camera", at, wire.Digest{1}), wire.RawKey("thule", "camera", at, wire.Digest{2})
	a.Put(stuck, []byte("bytes"))
	a.Put(other, []byte("bytes"))
	a.Store.Refuse = func(key string, deletes bool) error {
		if deletes && key == stuck {
			return objectstore.ErrAccessDenied
		}
		return nil
	}
	objects := []Object{{Key: stuck, Reason: wire.DeletedDuplicate, Instrument: "camera", Instead: "x"}, {Key: other, Reason: wire.DeletedDuplicate, Instrument: "camera", Instead: "x"}}
	for range 3 {
		kept, err := d.Delete(t.Context(), time.Now(), objects...)
		if err != nil || len(kept) != 1 || kept[0].Key != stuck || kept[0].Why != KeptRefused {
			t.Fatalf("kept %v, %v", kept, err)
		}
		objects = objects[:1]
	}
	if len(a.Keys(other)) != 0 || len(a.Keys(stuck)) != 1 || !d.Refused(stuck) || d.Refused(other) {
		t.Error("another object waits for the one that is refused")
	}
	if n := testutil.ToFloat64(metrics.kept.WithLabelValues(KeptRefused)); n != 3 {
		t.Errorf("%v refusals are counted", n)
	}
	if n := testutil.ToFloat64(metrics.deleted.WithLabelValues(string(wire.DeletedDuplicate))); n != 1 {
		t.Errorf("%v are counted as deleted", n)
	}
	if n := strings.Count(log.String(), stuck); n != 1 {
		t.Errorf("the log names it %d times:\n%s", n, log.String())
	}
	a.Store.Refuse = nil
	if kept, err := d.Delete(t.Context(), time.Now(), objects...); err != nil || len(kept) != 0 || len(a.Keys(stuck)) != 0 || d.Refused(stuck) {
		t.Errorf("it stays although the store lets it go: %v, %v", kept, err)
	}
	if records := a.Keys(wire.DeletionsPrefix("thule")); len(records) != 1 {
		t.Errorf("the records are %v", records)
	}
}
