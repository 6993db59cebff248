// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/archivist/deletion"
	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// A part that the manifest's writer closes while a day is compacted is not written into
// the version that does not replace it: each object is counted once.
func TestPartWhileCompacting(t *testing.T) {
	l := newLab(t)
	l.fill()
	late := l.pack(object{"sonde", noon.Add(time.Hour), "late"})
	store := &interrupted{Store: l.Store, then: func() { l.list(late...) }}
	store.list, store.nth = wire.ManifestPrefix(site, "sonde", day), 2
	c := l.compactor()
	c.cfg.Store = store
	if _, err := c.compact(t.Context(), "sonde", day); err != nil {
		t.Fatal(err)
	}
	store.once.Do(store.then)
	l.check()
	sum, err := manifest.Summarize(t.Context(), l.Store, site, "sonde", day)
	if err != nil {
		t.Fatal(err)
	}
	want := uint64(0)
	for _, instrument := range l.current {
		if instrument == "sonde" {
			want++
		}
	}
	if uint64(sum.Entries) != want {
		t.Errorf("the day's files count %d objects, there are %d", sum.Entries, want)
	}
}

// A day with an unreadable file waits and keeps all its packs; other days and instruments continue.
func TestUnreadableDay(t *testing.T) {
	l := newLab(t)
	l.fill()
	packs := l.Keys("packs/")
	before := wire.DayOf(noon.AddDate(0, 0, -1))
	l.Put(wire.ManifestPartKey(site, "camera", before, 1), []byte("no manifest"))
	file := wire.ManifestPartKey(site, "camera", day, l.parts["camera"]+1)
	l.Put(file, []byte("no manifest"))
	c := l.compactor()
	for range 2 {
		if err := c.pass(t.Context(), time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	for instrument, versions := range map[string]int{"sonde": 1, "camera": 0} {
		files, err := manifest.List(t.Context(), l.Store, site, instrument, day)
		if err != nil || files.NextVersion != versions+1 {
			t.Errorf("%s: %+v, %v", instrument, files, err)
		}
	}
	for _, key := range packs {
		if len(l.Keys(key)) != 1 {
			t.Errorf("%s is gone", key)
		}
	}
	if c.cursor.Through != "" {
		t.Errorf("the cursor says through %s", c.cursor.Through)
	}
	for _, key := range []string{file, wire.ManifestPartKey(site, "camera", before, 1)} {
		if err := l.Store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := c.pass(t.Context(), time.Now().Add(2*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	l.check()
	if c.cursor.Through != day {
		t.Errorf("after that it says through %q", c.cursor.Through)
	}
	if left := l.Keys(packs[0]); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// The bytes of a duplicate in a pack stay where its original is gone: they are announced
// as an object of its own, once, under an ID that no line says is marked as a duplicate.
func TestDuplicateOfNothing(t *testing.T) {
	direct := func(wire.Notice) string { return "" }
	for name, c := range map[string]struct {
		id func(wire.Notice) string
		// again: it was announced before, and is listed as a duplicate since.
		again bool
	}{
		"never in a spool": {direct, false},
		"out of a spool":   {wire.SpooledID, false},
		"announced and marked as a duplicate before":                 {direct, true},
		"out of a spool, announced and marked as a duplicate before": {wire.SpooledID, true},
	} {
		t.Run(name, func(t *testing.T) { duplicateOfNothing(t, c.id, c.again) })
	}
}

func duplicateOfNothing(t *testing.T, id func(wire.Notice) string, again bool) {
	l := newLab(t)
	l.fill()
	twice := l.packOf(id, object{"sonde", noon.Add(time.Hour), "sent twice"}, object{"sonde", noon.Add(time.Hour), "also sent twice"})
	kept := l.own(object{"sonde", noon.AddDate(0, 0, -1), "also sent twice"})
	l.PutPart("sonde", wire.DayOf(kept.ReceivedAt), 1, kept.Record)
	gone := l.notice(object{"sonde", noon.AddDate(0, 0, -1), "sent twice"})
	gone.Key = wire.RawKey(site, "sonde", gone.ReceivedAt, gone.Digest)
	twice[0].State, twice[0].DuplicateOf = wire.StateDuplicate, gone.Key
	twice[1].State, twice[1].DuplicateOf = wire.StateDuplicate, kept.ID
	l.list(twice...)
	last := twice[0]
	if again {
		last.ID = wire.OrphanID(last)
		l.list(last)
	}
	c := l.compactor()
	for range 2 {
		if err := c.pass(t.Context(), time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.Keys(twice[0].Key)) != 1 {
		t.Fatal("the last copy of an object is gone")
	}
	s, err := l.JetStream.Stream(t.Context(), wire.NoticeStream(site))
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != 1 {
		t.Errorf("%d notices, want 1", n)
	}
	m, err := s.GetMsg(t.Context(), s.CachedInfo().State.LastSeq)
	if err != nil {
		t.Fatal(err)
	}
	n, err := wire.Decode[wire.Notice](m.Data)
	if err != nil {
		t.Fatal(err)
	}
	if n.ID != wire.OrphanID(last) || n.ID == last.ID || n.State != wire.StateCurrent || n.Key != twice[0].Key {
		t.Errorf("announced is %+v", n)
	}
	l.sent[n.ID] = l.sent[twice[0].ID]
	l.list(n) // as the manifest's writer does
	for range 3 {
		if err := c.pass(t.Context(), time.Now().Add(2*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	l.check()
	if left := l.Keys(twice[0].Key); len(left) > 0 {
		t.Errorf("%v is left after its members have other places", left)
	}
	if c.cursor.Through != day {
		t.Errorf("the cursor says through %q", c.cursor.Through)
	}
}

// The bytes of a duplicate in a pack stay if its original expired before it. If the original was
// purged, or expired with the same day, the bytes are removed with it.
func TestDuplicateOfWhatExpired(t *testing.T) {
	l := newLab(t)
	l.fill()
	stays := l.pack(object{"sonde", noon.Add(time.Hour), "expired"})
	goes := l.pack(object{"sonde", noon.Add(time.Hour), "purged"}, object{"sonde", noon.Add(time.Hour), "expired today"})
	var tombs []wire.Record
	for i, by := range []struct {
		at   time.Time
		name string
	}{{noon.AddDate(0, 0, -1), wire.ByRetention}, {noon.AddDate(0, 0, -1), "anna"}, {noon, wire.ByRetention}} {
		n := l.notice(object{"sonde", by.at, []string{"expired", "purged", "expired today"}[i]})
		n.Key = wire.RawKey(site, "sonde", n.ReceivedAt, n.Digest)
		n.ID, n.State, n.ChangedBy, n.PurgedAt = n.Key, wire.StatePurged, by.name, &now
		tombs = append(tombs, n.Record)
	}
	l.PutPart("sonde", wire.DayOf(tombs[0].ReceivedAt), 1, tombs[:2]...)
	for i, n := range []*wire.Notice{&stays[0], &goes[0], &goes[1]} {
		n.State, n.DuplicateOf = wire.StateDuplicate, tombs[i].ID
	}
	l.list(slices.Concat(stays, goes, []wire.Notice{{Site: site, Instrument: "sonde", Record: tombs[2]}})...)
	c := l.compactor()
	for range 2 {
		if err := c.pass(t.Context(), time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.Keys(stays[0].Key)) != 1 {
		t.Error("the last copy of an object is gone with one that expired before it")
	}
	if len(l.Keys(goes[0].Key)) != 0 {
		t.Error("what was purged is still there")
	}
	s, err := l.JetStream.Stream(t.Context(), wire.NoticeStream(site))
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetLastMsgForSubject(t.Context(), wire.NoticeSubject(site, "sonde"))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := wire.Decode[wire.Notice](m.Data); err != nil || n.ID != wire.OrphanID(stays[0]) || n.State != wire.StateCurrent {
		t.Errorf("announced is %+v, %v", n, err)
	}
}

// crowded is a store with a day of many packs, none of which can be read any more.
type crowded struct {
	objectstore.Store
	packs int
	most  uint64
}

func (s *crowded) List(_ context.Context, prefix, _ string) iter.Seq2[objectstore.Info, error] {
	return func(yield func(objectstore.Info, error) bool) {
		if prefix != wire.PackPrefix(site, day) {
			return
		}
		for i := range s.packs {
			if i%100_000 == 99_999 {
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				s.most = max(s.most, m.HeapAlloc)
			}
			if !yield(objectstore.Info{Key: wire.PackKey(site, noon, "gateway-0", "one", uint64(i+1)), Size: 4096, ModifiedAt: noon}, nil) {
				return
			}
		}
	}
}

func (s *crowded) Get(_ context.Context, key string, _ objectstore.Range) (io.ReadCloser, objectstore.Info, error) {
	return nil, objectstore.Info{}, fmt.Errorf("%s: %w", key, objectstore.ErrNotFound)
}

// The memory held for a day does not grow with the number of its packs.
func TestMemoryOfManyPacks(t *testing.T) {
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	store := &crowded{packs: 1_000_000}
	c := New(Config{
		Base:    holder.Base{Site: site, Store: store, Log: slog.New(slog.DiscardHandler)},
		Metrics: NewMetrics(prometheus.NewRegistry()), Deleter: deletion.New(deletion.Config{Base: holder.Base{Site: site, Store: store, Log: slog.New(slog.DiscardHandler)}, Metrics: deletion.NewMetrics(prometheus.NewRegistry())}),
	})
	if _, err := c.collect(t.Context(), day, []string{"sonde"}, now); err != nil {
		t.Fatal(err)
	}
	grown := int64(store.most) - int64(before.HeapAlloc)
	t.Logf("%d packs: %d KiB", store.packs, grown>>10)
	if grown > 24<<20 {
		t.Errorf("%d MiB are held for a day of %d packs", grown>>20, store.packs)
	}
}

// A pack and an object that the store refuses to delete hold up no others, and are tried again.
func TestCollectWhatCannotBeDeleted(t *testing.T) {
	l := newLab(t)
	shared, own := l.fill()
	l.Store.Refuse = func(key string, deletes bool) error {
		if deletes && (key == shared[0][0].Key || key == own[0].Key) {
			return objectstore.ErrAccessDenied
		}
		return nil
	}
	c := l.compactor()
	pass := func() {
		t.Helper()
		for range 2 {
			if err := c.pass(t.Context(), time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
	}
	left := func() (n int) {
		for _, members := range shared {
			n += len(l.Keys(members[0].Key))
		}
		for _, o := range own[:len(own)-1] { // the last is too large
			n += len(l.Keys(o.Key))
		}
		return n
	}
	pass()
	if n := left(); n != 2 || len(l.Keys(shared[0][0].Key)) != 1 || len(l.Keys(own[0].Key)) != 1 {
		t.Errorf("%d objects are left", n)
	}
	l.Store.Refuse = nil
	pass()
	if n := left(); n != 0 {
		t.Errorf("%d objects are left although the store lets them go", n)
	}
	l.check()
}

// Places that a compaction replaced stay while damage of the new place is reported: they may hold the last whole copy.
// They are removed once the report is gone.
func TestMovedIntoDamagedPack(t *testing.T) {
	l := newLab(t)
	own := l.own(object{"sonde", noon, "raw"})
	other := l.own(object{"sonde", noon.Add(time.Second), "nobody read this one"})
	member := l.pack(object{"sonde", noon.Add(time.Minute), "member"})[0]
	l.list(own, other, member)
	c := l.compactor()
	pass := func(at time.Time) {
		t.Helper()
		if err := c.pass(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
	old := []string{own.Key, other.Key, member.Key}
	kept := func() int {
		return len(slices.DeleteFunc(slices.Clone(old), func(key string) bool { return len(l.Keys(key)) == 0 }))
	}
	pass(now) // what moved stays where it was for the grace
	listed, status := l.check(), l.KV(wire.StatusBucket(site))
	for _, id := range []string{own.ID, member.ID} {
		value, err := wire.Encode(wire.DamageOf("sonde", listed[id], wire.DamageDamaged, "feed-1", now))
		if err == nil {
			_, err = status.Put(t.Context(), wire.DamageKey("sonde", id), value)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	pass(time.Now().Add(time.Hour))
	if kept() != len(old) || len(l.announced()) != 0 {
		t.Errorf("%d of %d old places are left, and announced is %v", kept(), len(old), l.announced())
	}
	for _, id := range []string{own.ID, member.ID} {
		if err := status.Delete(t.Context(), wire.DamageKey("sonde", id)); err != nil {
			t.Fatal(err)
		}
	}
	pass(time.Now().Add(time.Hour))
	if kept() != 0 {
		t.Errorf("%d old places are left although no damage is reported any more", kept())
	}
}
