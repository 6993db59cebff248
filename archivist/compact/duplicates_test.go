// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// claim says in the bucket of names which object had a name first.
func (l *lab) claim(n wire.Notice) {
	l.Helper()
	value, err := wire.Encode(wire.NameClaim{Name: n.Name, Versions: []wire.NameVersion{{Version: 1, Digest: n.Digest, Size: n.Size, Key: n.ID, ReceivedAt: n.ReceivedAt,
		Gateway: n.Gateway, Incarnation: n.Incarnation, Announced: true}}})
	if err == nil {
		_, err = l.KV(wire.NamesBucket(site)).Put(l.Context(), wire.NameKey(n.Instrument, n.Name), value)
	}
	if err != nil {
		l.Fatal(err)
	}
}

// announced returns the notices that are in the stream.
func (l *lab) announced() (ids []string) {
	l.Helper()
	s, err := l.JetStream.Stream(l.Context(), wire.NoticeStream(site))
	if err != nil {
		l.Fatal(err)
	}
	for sequence := max(1, s.CachedInfo().State.FirstSeq); sequence <= s.CachedInfo().State.LastSeq; sequence++ {
		m, err := s.GetMsg(l.Context(), sequence)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			l.Fatal(err)
		}
		n, err := wire.Decode[wire.Notice](m.Data)
		if err != nil {
			l.Fatal(err)
		}
		ids = append(ids, n.ID)
	}
	return ids
}

// A duplicate in a pack goes with its original, an object with a name, when that is purged: it does
// not come back as an object of its own. A duplicate whose original expired before it stays. While
// it is unknown when the original was received, nothing goes and nothing is announced.
func TestDuplicateOfPurgedName(t *testing.T) {
	l := newLab(t)
	l.fill()
	early := noon.AddDate(0, 0, -1)
	originals := map[string]*wire.Notice{}
	for name, by := range map[string]string{"purged.fits": "anna", "expired.fits": wire.ByRetention} {
		n := l.notice(object{"sonde", early, name})
		n.Name, n.Key = name, wire.NamedKey(site, "sonde", name, 1)
		n.ID, n.State, n.ChangedBy, n.PurgedAt = n.Key, wire.StatePurged, by, &now
		originals[name] = &n
	}
	l.PutPart("sonde", wire.DayOf(early), 1, originals["purged.fits"].Record, originals["expired.fits"].Record)
	goes := l.pack(object{"sonde", noon.Add(time.Hour), "purged.fits"})
	stays := l.pack(object{"sonde", noon.Add(time.Hour), "expired.fits"})
	for i, n := range []*wire.Notice{&goes[0], &stays[0]} {
		n.State, n.DuplicateOf = wire.StateDuplicate, originals[[]string{"purged.fits", "expired.fits"}[i]].ID
	}
	l.list(goes[0], stays[0])
	c := l.compactor()
	pass := func() {
		t.Helper()
		for range 2 {
			if err := c.pass(t.Context(), time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
	}
	pass() // there are no claims yet
	if len(l.Keys(goes[0].Key)) != 1 || len(l.Keys(stays[0].Key)) != 1 || len(l.announced()) != 0 {
		t.Errorf("while the claims are made anew: packs %v, announced %v", l.Keys(wire.PacksPrefix(site)), l.announced())
	}
	for _, n := range originals {
		l.claim(*n)
	}
	pass()
	if len(l.Keys(goes[0].Key)) != 0 {
		t.Error("the bytes of what somebody purged are still there")
	}
	if len(l.Keys(stays[0].Key)) != 1 {
		t.Error("the last copy of an object is gone with one that expired before it")
	}
	if got := l.announced(); !slices.Equal(got, []string{wire.OrphanID(stays[0])}) {
		t.Errorf("announced are %v", got)
	}
}

// A pack that is rewritten keeps duplicates whose originals are gone: they are listed as objects of
// their own first. Duplicates whose originals are there go, and so do those that were removed by
// request.
func TestRewriteKeepsLastCopies(t *testing.T) {
	l := newLab(t)
	members := l.pack(object{"sonde", noon, "goes"}, object{"sonde", noon, "last"}, object{"sonde", noon, "also there"}, object{"sonde", noon, "removed"}, object{"camera", noon, "stays"})
	gone := l.own(object{"sonde", noon.AddDate(0, 0, -1), "last"})
	there := l.own(object{"sonde", noon.AddDate(0, 0, -1), "also there"})
	l.PutPart("sonde", wire.DayOf(gone.ReceivedAt), 1, gone.Record, there.Record)
	if err := l.Store.Delete(t.Context(), gone.Key); err != nil {
		t.Fatal(err)
	}
	members[1].State, members[1].DuplicateOf = wire.StateDuplicate, gone.ID
	members[2].State, members[2].DuplicateOf = wire.StateDuplicate, there.ID
	members[3].State, members[3].DuplicateOf = wire.StateDuplicate, gone.ID
	l.list(members...)
	removal := wire.Removal{Instrument: "sonde", Day: day, ID: members[3].ID, Reason: "private", By: "anna", At: now}
	value, err := wire.Encode(removal)
	if err == nil {
		_, err = l.KV(wire.CursorBucket(site)).Create(t.Context(), removal.Key(), value)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := l.compactor()
	if err := c.Rewrite(t.Context(), members[0].Key, members[0].ID); !errors.Is(err, ErrUnlisted) {
		t.Fatalf("%v, want ErrUnlisted", err)
	}
	orphan := members[1]
	orphan.ID, orphan.State, orphan.DuplicateOf = wire.OrphanID(members[1]), wire.StateCurrent, ""
	if got := l.announced(); !slices.Equal(got, []string{orphan.ID}) {
		t.Fatalf("announced are %v, want %s", got, orphan.ID)
	}
	l.sent[orphan.ID] = l.sent[members[1].ID]
	l.list(orphan) // as the manifest's writer does
	if err := c.Rewrite(t.Context(), members[0].Key, members[0].ID); err != nil {
		t.Fatal(err)
	}
	if len(l.Keys(members[0].Key)) != 0 {
		t.Error("the pack is still there")
	}
	delete(l.current, members[0].ID)
	l.check()
}

// A duplicate in a pack stays if its original is reported as damaged, and is damaged: it is listed as an object of its
// own. If the original is whole all the same, the duplicate is removed.
func TestDuplicateOfWhatIsDamaged(t *testing.T) {
	l := newLab(t)
	early := noon.AddDate(0, 0, -1)
	named := l.notice(object{"sonde", early, "rotten name"})
	named.Name, named.Key = "a.fits", wire.NamedKey(site, "sonde", "a.fits", 1)
	named.ID = named.Key
	originals := []wire.Notice{l.own(object{"sonde", early, "whole"}), l.own(object{"sonde", early, "rotten"}), named}
	l.Put(originals[1].Key, []byte("ROTTEN"))
	l.Put(named.Key, []byte("ROTTEN NAME"))
	var duplicates []wire.Notice
	for i, n := range originals {
		l.PutPart("sonde", wire.DayOf(early), i+1, n.Record)
		value, err := wire.Encode(wire.DamageOf("sonde", n.Record, wire.DamageDamaged, "gateway-1", now))
		if err == nil {
			_, err = l.KV(wire.StatusBucket(site)).Put(t.Context(), wire.DamageKey("sonde", n.ID), value)
		}
		if err != nil {
			t.Fatal(err)
		}
		d := l.pack(object{"sonde", noon, []string{"whole", "rotten", "rotten name"}[i]})[0]
		d.State, d.DuplicateOf = wire.StateDuplicate, n.ID
		duplicates = append(duplicates, d)
	}
	l.claim(named)
	l.list(duplicates...)
	c := l.compactor()
	for range 2 {
		if err := c.pass(t.Context(), time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.Keys(duplicates[0].Key)) != 0 {
		t.Error("a duplicate of what is whole stays")
	}
	if len(l.Keys(duplicates[1].Key)) != 1 || len(l.Keys(duplicates[2].Key)) != 1 {
		t.Error("the last whole copy of a damaged object is gone")
	}
	want := []string{wire.OrphanID(duplicates[1]), wire.OrphanID(duplicates[2])}
	got := l.announced()
	slices.Sort(want)
	slices.Sort(got)
	if got = slices.Compact(got); !slices.Equal(got, want) {
		t.Errorf("announced are %v, want %v", got, want)
	}
}
