// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/manifest/manifesttest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/pack"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// nextSweeper is the one of a new lease, which asks a writer that has no day in memory. The sweeps of it have what time the test gives.
func nextSweeper(a *manifesttest.Archive, age time.Duration) *Sweeper {
	a.Helper()
	s := newSweeper(a)
	s.cfg.Age, s.cfg.Agree = age, func(context.Context, time.Time) error { return nil }
	s.writer.listed.Store(&stream.Position{Epoch: a.Epoch, Next: math.MaxUint64})
	go func() {
		for {
			select {
			case q := <-s.writer.questions:
				q.answer <- nil
			case <-a.Context().Done():
				return
			}
		}
	}()
	if err := s.load(a.Context()); err != nil {
		a.Fatal(err)
	}
	return s
}

// putStored stores what a gateway stored of a body.
func putStored(a *manifesttest.Archive, instrument string, at time.Time, body string) wire.Record {
	a.Helper()
	n := wire.Notice{Site: a.Site, Instrument: instrument, Record: raw(instrument, at, body)}
	n.Size, n.TimeSource = int64(len(body)), wire.TimeSourceReceived
	metadata, err := wire.ObjectMetadata(n)
	if err == nil {
		err = a.Store.Put(a.Context(), n.Key, strings.NewReader(body), n.Size, objectstore.PutOptions{Metadata: metadata})
	}
	if err != nil {
		a.Fatal(err)
	}
	return n.Record
}

// putPack stores a pack of one member for each body, and returns the members.
func putPack(a *manifesttest.Archive, key, instrument string, at time.Time, bodies ...string) (members []wire.Record) {
	a.Helper()
	var out bytes.Buffer
	w := pack.NewWriter(key, &out)
	for _, body := range bodies {
		n, err := w.Add(wire.Notice{Site: a.Site, Instrument: instrument, Record: wire.Record{Size: int64(len(body)), Digest: sha256.Sum256([]byte(body)), State: wire.StateCurrent,
			MediaType: "image/png", ReceivedAt: at, TimeSource: wire.TimeSourceReceived, Completeness: wire.CompletenessVerified, Gateway: "gateway-0", Incarnation: "one"}},
			strings.NewReader(body))
		if err != nil {
			a.Fatal(err)
		}
		members = append(members, n.Record)
	}
	if err := w.Close(); err != nil {
		a.Fatal(err)
	}
	a.Put(key, out.Bytes())
	return members
}

// putChanges stores lines of a part that say what their objects do not.
func putChanges(a *manifesttest.Archive, part int, state wire.State, records ...wire.Record) {
	a.Helper()
	for i := range records {
		records[i].State = state
	}
	header := wire.ManifestHeader{Site: a.Site, Instrument: "camera", Day: wire.DayOf(records[0].ReceivedAt)}
	if err := read.PutChanges(a.Context(), a.Store, header, part, records); err != nil {
		a.Fatal(err)
	}
}

// announced returns the IDs of all notices.
func announced(a *manifesttest.Archive) []string {
	a.Helper()
	notices, err := a.JetStream.Stream(a.Context(), wire.NoticeStream(a.Site))
	if err != nil {
		a.Fatal(err)
	}
	var ids []string
	for sequence := range notices.CachedInfo().State.LastSeq {
		m, err := notices.GetMsg(a.Context(), sequence+1)
		if err != nil {
			a.Fatal(err)
		}
		n, err := wire.Decode[wire.Notice](m.Data)
		if err != nil || n.State != wire.StateCurrent {
			a.Errorf("a notice %+v, %v", n, err)
		}
		ids = append(ids, n.ID)
	}
	slices.Sort(ids)
	return ids
}

// lose notes that files of manifests are lost, as the keeper of the index does.
func lose(a *manifesttest.Archive, at time.Time) {
	a.Helper()
	value, err := wire.Encode(wire.LostManifests{Found: at})
	cursors, kvErr := a.JetStream.KeyValue(a.Context(), wire.CursorBucket(a.Site))
	if err := errors.Join(err, kvErr); err != nil {
		a.Fatal(err)
	}
	if _, err := cursors.Put(a.Context(), wire.LostManifestsKey, value); err != nil {
		a.Fatal(err)
	}
}

// After files of manifests are lost, the whole bucket is swept, packs included, also by the next lease if the first sweep fails, and until
// objects that were too young are announced. Objects that were retracted or purged, or may have been, are counted and not announced.
func TestSweepAfterManifestsAreLost(t *testing.T) {
	a := manifesttest.New(t, site)
	begin := time.Now().UTC().Truncate(time.Millisecond)
	at, after := begin.AddDate(0, 0, -60), func(hours time.Duration) time.Time { return begin.Add(hours * time.Hour) }
	var of []wire.Record
	for i, body := range []string{"current", "retracted", "restored", "purged", "retracted and purged", "purged and named"} {
		of = append(of, putStored(a, "camera", at.Add(time.Duration(i)*time.Second), body))
	}
	members := putPack(a, wire.PackKey(site, at, "gateway-0", "one", 1), "camera", at, "member", "retracted member")
	unknown := putStored(a, "camera", at.AddDate(0, 0, -1), "of a day whose changes cannot be read")
	a.Put(wire.ChangesKey(site, "camera", wire.DayOf(unknown.ReceivedAt), 1, unknown.Digest), []byte("no changes"))
	putChanges(a, 1, wire.StateRetracted, of[1], of[2], of[4], members[1])
	putChanges(a, 2, wire.StatePurged, of[3], of[4], of[5])
	putChanges(a, 3, wire.StateCurrent, of[2], of[5])

	const age = 10 * time.Minute
	s := nextSweeper(a, age)
	s.cursor = wire.SweepCursor{Recent: after(2), Whole: after(2), Epoch: a.Epoch}
	if err := s.save(t.Context()); err != nil {
		t.Fatal(err)
	}
	lose(a, after(2))
	a.Store.KillAfter(0)
	if err := s.sweep(t.Context(), after(3)); !errors.Is(err, manifesttest.ErrKilled) {
		t.Fatalf("without the lease: %v", err)
	}
	a.Store.KillAfter(-1)
	s = nextSweeper(a, age)
	if err := s.sweep(t.Context(), after(4)); err != nil {
		t.Fatal(err)
	}
	want := []string{of[0].ID, of[2].ID, members[0].ID}
	slices.Sort(want)
	if diff := cmp.Diff(want, announced(a)); diff != "" {
		t.Errorf("announced (-want +got):\n%s", diff)
	}
	if n := testutil.ToFloat64(s.cfg.Metrics.found.WithLabelValues(findingRetracted)); n != 6 {
		t.Errorf("%v are counted as retracted, want 6", n)
	}

	young := putStored(a, "camera", at.Add(time.Minute), "out of a spool")
	s.cfg.Age = 6 * time.Hour
	lose(a, after(5))
	for _, now := range []time.Time{after(5), after(12)} {
		if slices.Contains(announced(a), young.ID) {
			t.Error("what is too young is announced")
		}
		if err := s.sweep(t.Context(), now); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Contains(announced(a), young.ID) || !s.cursor.Whole.Equal(after(12)) {
		t.Errorf("the whole bucket is compared at %v, the last time before the young object of it was old enough", s.cursor.Whole)
	}
}
