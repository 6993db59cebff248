// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// named stores and announces an object that has a name.
func (l *lab) named(instrument string, at time.Time, name, body string) wire.Notice {
	l.t.Helper()
	n := l.notice(instrument, object{at, body})
	n.Name, n.Key = name, wire.NamedKey(l.site, instrument, name, 1)
	n.ID = n.Key
	l.putNamed(n, body)
	l.announce(n)
	return n
}

// putNamed stores an object under the key that its notice says.
func (l *lab) putNamed(n wire.Notice, body string) {
	l.t.Helper()
	metadata, err := wire.ObjectMetadata(n)
	if err != nil {
		l.t.Fatal(err)
	}
	err = l.store.Put(l.t.Context(), n.Key, strings.NewReader(body), n.Size, objectstore.PutOptions{Metadata: metadata, Digest: n.Digest, CreateOnly: true})
	if err != nil {
		l.t.Fatal(err)
	}
}

// The same object at two listeners counts once: the one that has a name stays, whichever
// came first, and on whichever day. Two names are two objects.
func TestNamesStay(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now().UTC()
	yesterday := now.Add(-24 * time.Hour)
	l.settings[camera] = wire.InstrumentEntry{Instrument: camera, RepeatWindowMillis: (48 * time.Hour).Milliseconds()}
	stop := l.run(l.config("a"))

	rawFirst := l.send(camera, yesterday, "raw first")
	l.await("it is listed", func() bool { return len(l.keys(camera, wire.StateCurrent)) == 1 })
	stays := []string{l.named(camera, now, "a", "raw first").Key, l.named(camera, now, "b", "named first").Key}
	gone := []string{rawFirst.Key, l.send(camera, now.Add(time.Second), "named first").Key}
	stays = append(stays, l.named(camera, now, "c", "raw first").Key)
	// At once, in one part.
	gone = append(gone, l.send(camera, now.Add(2*time.Second), "together").Key)
	stays = append(stays, l.named(camera, now.Add(2*time.Second), "d", "together").Key)
	gone = append(gone, l.send(camera, now.Add(3*time.Second), "together").Key)
	slices.Sort(gone)
	slices.Sort(stays)
	l.await("the nameless are marked as a duplicate", func() bool {
		return slices.Equal(gone, l.keys(camera, wire.StateDuplicate)) && slices.Equal(stays, l.stored(camera))
	})
	want(t, "listed", stays, l.keys(camera, wire.StateCurrent))
	l.await("the ledger counts duplicates of today", func() bool { return l.ledger(camera, wire.DayOf(now), wire.StepDuplicates).Objects == 3 })
	l.await("the ledger counts the duplicate of yesterday", func() bool { return l.ledger(camera, wire.DayOf(yesterday), wire.StepDuplicates).Objects == 1 })
	stop()

	// The next archivist, which reads this from the manifests, judges alike.
	l.run(l.config("b"))
	gone = append(gone, l.send(camera, now.Add(4*time.Second), "raw first").Key)
	slices.Sort(gone)
	l.await("a later one is marked as a duplicate too", func() bool {
		return slices.Equal(gone, l.keys(camera, wire.StateDuplicate)) && slices.Equal(stays, l.stored(camera))
	})
	for _, r := range l.listed(camera) {
		if r.State == wire.StateDuplicate && !slices.Contains(stays, r.DuplicateOf) {
			t.Errorf("%s is marked as a duplicate for %s, which does not stay", r.ID, r.DuplicateOf)
		}
	}
}

// If days expire, an object without a name is no duplicate of one with a name that was received on an earlier day: that
// one is removed first, and what both hold would go with it.
func TestNamelessThatOutlivesTheNamed(t *testing.T) {
	l := start(t).site(t, "thule")
	l.settings[camera] = wire.InstrumentEntry{Instrument: camera, RepeatWindowMillis: (72 * time.Hour).Milliseconds(),
		Retention: &wire.RetentionEntry{MaxAgeMillis: (48 * time.Hour).Milliseconds()}}
	noon := time.Now().UTC().Truncate(24 * time.Hour).Add(-12 * time.Hour) // yesterday's
	stays := l.send(camera, noon, "frame")
	same := l.send(camera, noon.Add(time.Second), "other frame")
	stop := l.run(l.config("a"))
	l.await("those without a name are listed", func() bool { return len(l.listed(camera)) == 2 })
	early := l.named(camera, noon.Add(-24*time.Hour), "a", "frame") // out of a spool
	late := l.named(camera, noon.Add(2*time.Second), "b", "other frame")
	l.await("the one of the same day is marked as a duplicate", func() bool { return slices.Contains(l.keys(camera, wire.StateDuplicate), same.Key) })
	stop()
	want(t, "listed", sorted(stays.Key, early.Key, late.Key), l.keys(camera, wire.StateCurrent))
	want(t, "stored", sorted(stays.Key, early.Key, late.Key), l.stored(camera))
}

// Uploads to which nothing comes any more are removed when their time is over, and
// not before, though other leftovers go after a day.
func TestSweepOfUploads(t *testing.T) {
	l := start(t).site(t, "thule")
	upload := func(id string, expiry time.Duration) []string {
		info, err := wire.Encode(wire.UploadInfo{Length: 10, CreatedAt: time.Now(), ExpiryMillis: expiry.Milliseconds()})
		if err != nil {
			t.Fatal(err)
		}
		keys := []string{wire.UploadPieceKey("thule", camera, id, 0), wire.UploadPieceKey("thule", camera, id, 5), wire.UploadInfoKey("thule", camera, id)}
		put(t, l, keys[0], "12345")
		put(t, l, keys[1], "678")
		put(t, l, keys[2], string(info))
		return keys
	}
	over, others := upload(strings.Repeat("0", 32), time.Millisecond), upload(strings.Repeat("1", 32), time.Hour)
	l.run(l.config("a"))
	staged := func() []string {
		var keys []string
		for info, err := range l.store.List(t.Context(), wire.StagingPrefix("thule"), "") {
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, info.Key)
		}
		return keys
	}
	l.await("what is over is removed", func() bool { return !slices.Contains(staged(), over[0]) && len(staged()) <= len(others) })
	want(t, "staged", sorted(others...), staged())
}

// Two versions of a name that are sent at nearly the same instant may be announced in either order, and another archivist may work
// when the older one comes. It is listed as superseded, under the path that it has.
func TestOlderVersionComesLater(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now().UTC()
	version := func(name string, number int) wire.Notice {
		n := l.notice(camera, object{now.Add(time.Duration(number) * time.Millisecond), name + strings.Repeat("x", number)})
		n.Name, n.Path = name, "r1/"+name
		n.Key = wire.NamedKey(l.site, camera, name, number)
		n.ID = n.Key
		if number > 1 {
			n.Version, n.Supersedes = number, wire.NamedKey(l.site, camera, name, number-1)
		}
		l.putNamed(n, name+strings.Repeat("x", number))
		return n
	}
	states := func() map[string]wire.State {
		is := map[string]wire.State{}
		for _, r := range l.listed(camera) {
			is[r.Path+" "+string(rune('0'+max(r.Version, 1)))] = r.State
		}
		return is
	}
	listed := func(count int) func() bool { return func() bool { return len(states()) == count } }
	stop := l.run(l.config("a"))
	l.announce(version("split", 2))
	l.await("the newer version is listed", listed(1))
	stop()

	l.run(l.config("b"))
	l.announce(version("split", 1))
	for _, number := range []int{3, 2, 1} {
		l.announce(version("together", number))
	}
	l.await("all are listed", listed(5))
	got := states()
	for path, want := range map[string]wire.State{
		"r1/split 1": wire.StateSuperseded, "r1/split 2": wire.StateCurrent,
		"r1/together 1": wire.StateSuperseded, "r1/together 2": wire.StateSuperseded, "r1/together 3": wire.StateCurrent,
	} {
		if got[path] != want {
			t.Errorf("%s is %q, want %q", path, got[path], want)
		}
	}
}
