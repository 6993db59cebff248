// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/manifest/manifesttest"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// A closed day becomes packs of one instrument and one file a manifest; what that
// replaces goes when readers have had their time, and not before.
func TestCompact(t *testing.T) {
	l := newLab(t)
	_, own := l.fill()
	duplicate := l.pack(object{"sonde", noon.Add(time.Hour), "again"})[0]
	duplicate.State, duplicate.DuplicateOf = wire.StateDuplicate, own[0].ID
	l.list(duplicate)
	before := l.Keys("packs/")
	c := l.compactor()
	if err := c.pass(t.Context(), noon.Add(24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if files, err := manifest.List(t.Context(), l.Store, site, "sonde", day); err != nil || !files.CompactedAt.IsZero() {
		t.Errorf("a day that is still open is compacted: %+v, %v", files, err)
	}
	if err := c.pass(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	packed, of := l.check(), map[string]string{}
	for id, r := range packed {
		switch file, err := wire.ParsePackKey(r.Key); {
		case id == own[5].ID:
			if r.Key != id {
				t.Errorf("a large object moved to %s", r.Key)
			}
		case err != nil || !file.Compacted() || file.Day != day:
			t.Errorf("%s lies in %q, %v", id, r.Key, err)
		case of[r.Key] != "" && of[r.Key] != l.current[id]:
			t.Errorf("%s holds objects of two instruments", r.Key)
		default:
			of[r.Key] = l.current[id]
		}
	}
	if len(of) < 3 || len(of) > 8 { // 120 KB in packs of 100 KB, 60 KB in packs of 2 KiB more each
		t.Errorf("there are %d packs", len(of))
	}
	for _, instrument := range []string{"sonde", "camera"} {
		files, err := manifest.List(t.Context(), l.Store, site, instrument, day)
		if err != nil || len(files.InEffect) != 1 || files.NextPart <= 6 {
			t.Errorf("%s: %+v, %v", instrument, files, err)
		}
	}
	for _, key := range before { // readers may hold these places
		if _, err := l.Store.Head(t.Context(), key); err != nil {
			t.Error(err)
		}
	}
	if c.cursor.Through != "" {
		t.Errorf("the day is not done, the cursor says through %s", c.cursor.Through)
	}

	if err := c.pass(t.Context(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	l.check()
	if left := l.Keys("packs/"); len(left) != len(of) {
		t.Errorf("packs left: %v", left)
	}
	if left := l.Keys("o/"); len(left) != 1 || left[0] != own[5].ID {
		t.Errorf("objects of their own left: %v", left)
	}
	if c.cursor.Through != day {
		t.Errorf("the cursor says through %q", c.cursor.Through)
	}

	// A late pack is compacted too, and nothing else is touched.
	late := l.pack(object{"sonde", noon.Add(2 * time.Hour), "late"})
	l.list(late...)
	after := l.Keys("packs/")
	if err := l.compactor().pass(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if r := l.check()[late[0].ID]; r.Key == late[0].Key {
		t.Errorf("it still lies in %s", r.Key)
	}
	if n := len(l.Keys("packs/")); n != len(after)+1 {
		t.Errorf("%d packs, want %d", n, len(after)+1)
	}
}

// Nothing that was stored and that no manifest lists is removed: it is announced.
func TestUnlistedMembersStay(t *testing.T) {
	l := newLab(t)
	l.fill()
	forgotten := l.pack(object{"sonde", noon, "forgotten"}, object{"radar", noon, "of an instrument that lists nothing"})
	c := l.compactor()
	for range 2 {
		if err := c.pass(t.Context(), time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range forgotten {
		l.read(n.Record)
	}
	if c.cursor.Through != "" {
		t.Errorf("the cursor says through %q", c.cursor.Through)
	}
	s, err := l.JetStream.Stream(t.Context(), wire.NoticeStream(site))
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != 2 {
		t.Errorf("%d notices, want 2", n)
	}
}

// A pack is removed if its own gateway reports that it could not store it, and its members are not announced. A
// report about it by another gateway is ignored.
func TestFailedPack(t *testing.T) {
	l := newLab(t)
	l.fill()
	failed, foreign := l.pack(object{"sonde", noon, "sent again"}), l.pack(object{"sonde", noon, "of another gateway"})
	status := l.KV(wire.StatusBucket(site))
	for gateway, key := range map[string]string{"gateway-0": failed[0].Key, "gateway-1": foreign[0].Key} {
		report, err := wire.Encode(wire.FailedPacks{Gateway: gateway, Packs: []string{key}})
		if err == nil {
			_, err = status.Put(t.Context(), wire.FailedPacksKey(gateway), report)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, later := range []time.Duration{0, time.Hour} {
		if err := l.compactor().pass(t.Context(), time.Now().Add(later)); err != nil {
			t.Fatal(err)
		}
	}
	if left := l.Keys(failed[0].Key); len(left) != 0 {
		t.Errorf("%v is there", left)
	}
	l.read(foreign[0].Record)
	s, err := l.JetStream.Stream(t.Context(), wire.NoticeStream(site))
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != 1 {
		t.Errorf("%d notices, want that of the pack of which another gateway speaks", n)
	}
}

// If a failed pack and another pack hold the same member, the member in the other pack is kept.
func TestFailedPackSharesMember(t *testing.T) {
	l := newLab(t)
	l.fill()
	id := wire.SpooledID
	kept, failed := l.packOf(id, object{"sonde", noon, "from a spool"}), l.packOf(id, object{"sonde", noon, "from a spool"})
	report, err := wire.Encode(wire.FailedPacks{Gateway: "gateway-0", Packs: []string{failed[0].Key}})
	if err == nil {
		_, err = l.KV(wire.StatusBucket(site)).Put(t.Context(), wire.FailedPacksKey("gateway-0"), report)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, later := range []time.Duration{0, time.Hour} {
		if err := l.compactor().pass(t.Context(), time.Now().Add(later)); err != nil {
			t.Fatal(err)
		}
	}
	l.read(kept[0].Record)
	if left := l.Keys(failed[0].Key); len(left) != 0 {
		t.Errorf("%v is there", left)
	}
}

// A pack that no manifest names when the day is looked at, and that the manifest's
// writer lists before its members are looked for, stays: its lines name it.
func TestPackListedBetweenLooks(t *testing.T) {
	l := newLab(t)
	l.fill()
	c := l.compactor()
	if err := c.pass(t.Context(), now); err != nil { // the day is compacted before a spool drains into it
		t.Fatal(err)
	}
	drained := l.pack(object{"sonde", noon, "drained from a spool"}, object{"camera", noon, "and another"})
	c.cfg.Store = &interrupted{Store: l.Store, key: drained[0].Key, then: func() { l.list(drained...) }}
	done, err := c.collect(t.Context(), day, []string{"camera", "sonde"}, time.Now().Add(time.Hour))
	if err != nil || !done {
		t.Errorf("collected: %t, %v", done, err)
	}
	l.check()
	if err := l.compactor().pass(t.Context(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	l.check()
}

// A kill at each write leaves an archive that is whole, and the next pass ends as
// if there had been none.
func TestCompactKilled(t *testing.T) {
	l := newLab(t)
	for writes := 0; ; writes++ {
		l.clear()
		l.fill()
		kv, err := l.JetStream.KeyValue(t.Context(), wire.CursorBucket(site))
		if err != nil {
			t.Fatal(err)
		}
		if err := kv.Delete(t.Context(), wire.CompactCursorKey); err != nil {
			t.Fatal(err)
		}
		killed := 0
		l.Store.KillAfter(writes)
		for _, at := range []time.Time{now, time.Now().Add(time.Hour)} {
			err := l.compactor().pass(t.Context(), at)
			if err != nil && !errors.Is(err, manifesttest.ErrKilled) {
				t.Fatal(err)
			}
			if err != nil {
				killed++
			}
		}
		l.Store.KillAfter(-1)
		l.check()
		for _, at := range []time.Time{now, time.Now().Add(time.Hour)} {
			if err := l.compactor().pass(t.Context(), at); err != nil {
				t.Fatalf("after a kill at write %d: %v", writes, err)
			}
		}
		l.check()
		if left := l.Keys("o/"); len(left) != 1 {
			t.Errorf("after a kill at write %d: objects of their own left: %v", writes, left)
		}
		for _, key := range l.Keys("packs/") {
			if !strings.Contains(key, wire.ArchivistWriter) {
				t.Errorf("after a kill at write %d: %s is left", writes, key)
			}
		}
		if killed == 0 {
			t.Logf("%d writes", writes)
			return
		}
	}
}

// A pack without one of its members: the others stay readable at any time, the
// bytes of the one are gone at the end, wherever the rewrite was killed.
func TestRewrite(t *testing.T) {
	l := newLab(t)
	for writes := 0; ; writes++ {
		l.clear()
		shared, _ := l.fill()
		out := shared[2][7]
		l.Store.KillAfter(writes)
		err := l.compactor().Rewrite(t.Context(), out.Key, out.ID)
		if err != nil && !errors.Is(err, manifesttest.ErrKilled) {
			t.Fatal(err)
		}
		l.Store.KillAfter(-1)
		if err != nil {
			delete(l.current, out.ID)
			if found := l.listedToo(out); found {
				l.current[out.ID] = out.Instrument
			}
			l.check()
			if err := l.compactor().Rewrite(t.Context(), out.Key, out.ID); err != nil {
				t.Fatalf("after a kill at write %d: %v", writes, err)
			}
		}
		delete(l.current, out.ID)
		l.check()
		for _, key := range l.Keys("packs/") {
			if key == out.Key {
				t.Errorf("after a kill at write %d: the pack is still there", writes)
			}
		}
		purged := 0
		for r, err := range manifest.Records(t.Context(), l.Store, site, out.Instrument, day) {
			if err != nil {
				t.Fatal(err)
			}
			if r.ID == out.ID && r.State == wire.StatePurged {
				purged++
			}
		}
		if purged != 1 {
			t.Errorf("the manifest has %d lines of what was taken out", purged)
		}
		if err == nil {
			t.Logf("%d writes", writes)
			return
		}
	}
}

// listedToo says whether a member is still listed.
func (l *lab) listedToo(n wire.Notice) bool {
	l.Helper()
	for r, err := range manifest.Day(l.Context(), l.Store, site, n.Instrument, day) {
		if err != nil {
			l.Fatal(err)
		}
		if r.ID == n.ID {
			return true
		}
	}
	return false
}

// Rewriting waits for the sweep where a member is in no manifest.
func TestRewriteUnlisted(t *testing.T) {
	l := newLab(t)
	members := l.pack(object{"sonde", noon, "one"}, object{"sonde", noon, "two"}, object{"sonde", noon, "three"})
	l.list(members[:2]...)
	if err := l.compactor().Rewrite(t.Context(), members[0].Key, members[0].ID); !errors.Is(err, ErrUnlisted) {
		t.Errorf("%v, want ErrUnlisted", err)
	}
	l.check()
	l.read(members[2].Record)
}

// A damaged object stays where it is, and its pack is kept.
func TestDamaged(t *testing.T) {
	l := newLab(t)
	shared, _ := l.fill()
	bad := shared[1][3]
	wrong := bad
	wrong.Digest[0]++
	wrong.ID = bad.ID
	c := l.compactor()
	moved, err := c.repack(t.Context(), bad.Instrument, []wire.Record{shared[1][1].Record, wrong.Record, shared[1][5].Record})
	if err != nil || len(moved) != 2 {
		t.Errorf("%d moved, %v", len(moved), err)
	}
	if _, there := moved[bad.ID]; there {
		t.Error("the damaged object moved")
	}
}

// A clock that jumps compacts no day that is still open, and deletes nothing of the others.
func TestClockThatJumps(t *testing.T) {
	l := newLab(t)
	today := time.Now().UTC()
	n := l.own(object{"sonde", today, "of today"})
	l.PutPart("sonde", wire.DayOf(today), 1, n.Record)
	l.own(object{"sonde", noon, "unlisted"})
	l.list(l.pack(object{"sonde", noon, "listed"})...)
	l.pack(object{"sonde", noon, "of nobody"})
	before := len(l.Keys(""))
	c := l.compactor()
	c.cfg.Agree = stream.ServerAgrees(l.JetStream, wire.CursorBucket(site))
	jumped := today.AddDate(1, 0, 0)
	for range 3 {
		if err := c.pass(t.Context(), jumped); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(l.Keys("")); n != before {
		t.Errorf("%d objects are in the bucket, there were %d", n, before)
	}
	if c.cursor.Through != "" {
		t.Errorf("the cursor says through %s", c.cursor.Through)
	}
	if err := c.pass(t.Context(), time.Now().UTC()); err != nil { // corrected
		t.Fatal(err)
	}
	if c.cursor.Through == "" && len(l.Keys(wire.ManifestPrefix(site, "sonde", day))) < 2 {
		t.Error("nothing is compacted after the clock was corrected")
	}
}
