// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/manifest/manifesttest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// If days expire, an object is no duplicate of one of an earlier day: that one is removed first, and what both hold
// would go with it. Equal objects of one day are duplicates as ever.
func TestDuplicateThatOutlivesItsOriginal(t *testing.T) {
	l := start(t).site(t, "hub")
	e := l.settings[camera]
	e.Retention = &wire.RetentionEntry{MaxAgeMillis: (48 * time.Hour).Milliseconds()}
	e.RepeatWindowMillis = (72 * time.Hour).Milliseconds()
	l.settings[camera] = e
	noon := time.Now().UTC().Truncate(24 * time.Hour).Add(-12 * time.Hour) // yesterday's
	early := l.send(camera, noon.Add(-24*time.Hour), "frame")
	late := l.send(camera, noon, "frame")
	again := l.send(camera, noon.Add(time.Second), "frame")
	l.run(l.config("a"))
	l.await("all are listed", func() bool { return len(l.listed(camera)) == 3 })
	want(t, "listed", sorted(early.Key, late.Key), l.keys(camera, wire.StateCurrent))
	want(t, "duplicates", sorted(again.Key), l.keys(camera, wire.StateDuplicate))
}

// Nothing is a duplicate while it is unknown whether equal objects of its instrument are real:
// because the registry does not know the instrument, or may not be the current one. Objects that are
// listed meanwhile are originals of those that come later.
func TestDuplicateWithoutRegistry(t *testing.T) {
	l := start(t).site(t, "thule")
	l.settings["old"] = l.settings[camera] // it is unknown whether it still says so
	const unknown = "unknown"
	var live, asked atomic.Bool
	cfg := l.config("a")
	cfg.Live = func() bool { return live.Load() || !asked.Swap(true) } // the first time it is waited for, before the lease
	l.run(cfg)
	now := time.Now().UTC().Truncate(time.Millisecond)
	originals := map[string]string{}
	for _, name := range []string{"old", unknown} {
		originals[name] = l.send(name, now, "same").ID
		l.send(name, now.Add(time.Second), "same")
		l.await("both are listed", func() bool { return len(l.listed(name)) == 2 })
		want(t, name+", duplicates", nil, l.keys(name, wire.StateDuplicate))
	}
	live.Store(true)
	l.send(unknown, now.Add(2*time.Second), "same")
	l.await("the third is listed", func() bool { return len(l.listed(unknown)) == 3 })
	want(t, "unknown to a registry of now, duplicates", nil, l.keys(unknown, wire.StateDuplicate))

	l.mu.Lock()
	l.settings[unknown] = l.settings[camera]
	l.mu.Unlock()
	for _, name := range []string{"old", unknown} {
		late := l.send(name, now.Add(3*time.Second), "same")
		l.await("the last one goes", func() bool { return slices.Equal(l.keys(name, wire.StateDuplicate), []string{late.Key}) })
		last := l.listed(name)
		if i := slices.IndexFunc(last, func(r wire.Record) bool { return r.ID == late.ID }); last[i].DuplicateOf != originals[name] {
			t.Errorf("%s duplicates %q, want %q", late.ID, last[i].DuplicateOf, originals[name])
		}
	}
}

// A duplicate that is listed as a duplicate, and whose original is gone before its bytes are,
// is listed again, under an ID of its own, and once.
func TestDuplicateOfNothingIsListed(t *testing.T) {
	l := start(t).site(t, "hub")
	now := time.Now()
	gone := l.notice(camera, object{now, "frame"}) // it was never stored, or it is lost
	duplicate := l.putObject(camera, object{now.Add(time.Second), "frame"})
	duplicate.State, duplicate.DuplicateOf = wire.StateDuplicate, gone.ID
	l.putPart(camera, wire.DayOf(now), 1, duplicate.Record)
	l.run(l.config("a"))
	l.await("it is listed as an object of its own", func() bool { return len(l.ids(camera, wire.StateCurrent)) == 1 })
	want(t, "listed", []string{wire.OrphanID(duplicate)}, l.ids(camera, wire.StateCurrent))
	want(t, "stored", []string{duplicate.Key}, l.stored(camera))
}

// So it is where the duplicate came out of a spool, in a pack: its own ID is listed as a duplicate.
func TestDuplicateOfNothingOutOfSpool(t *testing.T) {
	l := start(t).site(t, "hub")
	now := time.Now().UTC()
	gone := l.notice(camera, object{now, "frame"})
	duplicate := l.putPackOf(1, wire.SpooledID, sent{camera, object{now.Add(time.Second), "frame"}})[0]
	line := duplicate.Record
	line.State, line.DuplicateOf = wire.StateDuplicate, gone.ID
	l.putPart(camera, wire.DayOf(now), 1, line)
	l.run(l.config("a"))
	l.announce(duplicate) // a gateway that was killed brings it once more
	l.await("it is listed as an object of its own", func() bool { return len(l.ids(camera, wire.StateCurrent)) == 1 })
	want(t, "listed", []string{wire.OrphanID(duplicate)}, l.ids(camera, wire.StateCurrent))
	l.intact(wire.OrphanID(duplicate))
}

// The bytes of a duplicate stay after it was listed as an object of its own, also where its
// original is there again: neither the sweep nor a notice that comes again deletes them.
func TestOrphanKeepsItsBytes(t *testing.T) {
	l := start(t).site(t, "hub")
	now := time.Now().UTC()
	gone := l.notice(camera, object{now, "frame"})
	duplicate := l.putObject(camera, object{now.Add(time.Second), "frame"})
	line := duplicate.Record
	line.State, line.DuplicateOf = wire.StateDuplicate, gone.ID
	l.putPart(camera, wire.DayOf(now), 1, line)
	stop := l.run(l.config("a"))
	l.await("it is listed as an object of its own", func() bool { return len(l.ids(camera, wire.StateCurrent)) == 1 })
	orphan := l.ids(camera, wire.StateCurrent)[0]
	stop()

	l.putObject(camera, object{now, "frame"}) // a user restored it
	cfg := l.config("b")
	stop = l.run(cfg)
	const swept = "substorm_sweep_complete_timestamp_seconds"
	l.await("the bucket is swept", func() bool { return gauge(t, cfg, swept) > 0 })
	l.intact(orphan)
	l.announce(duplicate)
	l.send(camera, now.Add(2*time.Second), "next")
	l.await("the next one is listed", func() bool { return len(l.listed(camera)) >= 4 })
	stop() // the writer finished what followed
	l.intact(orphan)
}

// A duplicate whose original is purged before its part closes is an object of its own: the purge
// covers the bytes of one object.
func TestPurgeOfWhatWasJustRepeated(t *testing.T) {
	l := start(t).site(t, "hub")
	now := time.Now().UTC()
	first, again := l.send(camera, now, "frame"), l.send(camera, now.Add(time.Second), "frame")
	third := l.send(camera, now.Add(2*time.Second), "other")
	run := l.ask(first, wire.StatePurged, "private")
	l.run(l.keeper("a"))
	l.await("the original is gone", func() bool {
		d, decided := l.decision(run)
		return decided && d.Result == wire.DecisionDone && !l.there(first.Key) && len(l.removals()) == 0
	})
	want(t, "current", sorted(again.Key, third.Key), l.keys(camera, wire.StateCurrent))
	later := l.send(camera, now.Add(3*time.Second), "frame")
	l.await("the next one is a duplicate of that which stayed", func() bool { return slices.Contains(l.keys(camera, wire.StateDuplicate), later.Key) })
	want(t, "purged", sorted(first.Key), l.keys(camera, wire.StatePurged))
	l.intact(again.ID, third.ID)
	l.await("the ledger counts one duplicate", func() bool {
		return l.ledger(camera, wire.DayOf(now), wire.StepDuplicates).Objects == 1
	})
	changes, err := manifest.ReadChanges(t.Context(), l.store, l.site, camera, wire.DayOf(now))
	if err != nil {
		t.Fatal(err)
	}
	if is, ok := changes.Records[again.ID]; ok && is.State != wire.StateCurrent {
		t.Errorf("the change beside the object says %s", is.State)
	}
}

// While a day is due to expire, what it holds is no original: duplicates of it stay, also
// where the Instrument has no retention any more.
func TestDuplicateOfWhatIsDueToExpire(t *testing.T) {
	l := start(t).site(t, "hub")
	noon := time.Now().UTC().Truncate(24 * time.Hour).Add(-12 * time.Hour)
	first := l.send(camera, noon, "frame")
	stop := l.run(l.config("a"))
	l.await("the first is listed", func() bool { return len(l.listed(camera)) == 1 })
	l.removeDay(camera, wire.DayOf(noon)) // it waits: the registry is unknown
	again := l.send(camera, time.Now().UTC(), "frame")
	l.await("the second is listed", func() bool { return len(l.listed(camera)) == 2 })
	stop()
	want(t, "current", sorted(first.Key, again.Key), l.keys(camera, wire.StateCurrent))
	want(t, "stored", sorted(first.Key, again.Key), l.stored(camera))

	// So it is for an archivist that finds a duplicate half removed.
	half := l.putObject(camera, object{noon.Add(time.Hour), "frame"})
	half.State, half.DuplicateOf = wire.StateDuplicate, first.ID
	l.putPart(camera, wire.DayOf(half.ReceivedAt), 2, half.Record)
	l.run(l.config("b"))
	l.await("it is listed as an object of its own", func() bool {
		return slices.Contains(l.ids(camera, wire.StateCurrent), wire.OrphanID(half))
	})
	want(t, "stored", sorted(first.Key, again.Key, half.Key), l.stored(camera))
}

// An object that expired is known to be gone: an equal object is no duplicate
// of it, and nothing is reported as missing.
func TestDuplicateOfWhatExpired(t *testing.T) {
	l := start(t).site(t, "hub")
	noon := time.Now().UTC().Truncate(24*time.Hour).Add(-12*time.Hour).AddDate(0, 0, -5)
	e := l.settings[camera]
	e.Retention = &wire.RetentionEntry{MaxAgeMillis: (48 * time.Hour).Milliseconds()}
	e.RepeatWindowMillis = (20 * 24 * time.Hour).Milliseconds()
	l.settings[camera] = e
	cfg := l.keeper("a")
	cfg.ScrubRate = -1 // it reports what is missing too
	cfg.ExpireInterval = time.Hour
	cfg.Declared = func() ([]wire.InstrumentEntry, bool) { return []wire.InstrumentEntry{e}, true }
	first := l.send(camera, noon, "frame")
	l.run(cfg)
	l.await("the first is in the index", func() bool {
		days, err := manifest.Indexed(t.Context(), l.store, l.site, camera, l.index(camera))
		return err == nil && len(days) == 1 && days[0].Bytes > 0
	})
	l.removeDay(camera, wire.DayOf(noon))
	l.await("the first is gone", func() bool { return !l.there(first.Key) && len(l.removals()) == 0 })
	late := l.send(camera, noon.Add(time.Second), "frame") // out of a spool
	l.await("the second is listed", func() bool { return len(l.listed(camera)) == 2 })
	want(t, "current", sorted(late.Key), l.keys(camera, wire.StateCurrent))
	other := l.send(camera, noon.Add(2*time.Second), "frame")
	l.await("the third is a duplicate of the second", func() bool { return slices.Contains(l.keys(camera, wire.StateDuplicate), other.Key) })
	if _, err := l.kv(wire.StatusBucket(l.site)).Get(t.Context(), wire.DamageKey(camera, first.ID)); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("the object that expired is reported as damaged: %v", err)
	}
}

// removeDay says that a day is due to expire, as the part of the archivist does that finds
// such days.
func (l *lab) removeDay(instrument string, day wire.Day) {
	l.t.Helper()
	removal := wire.Removal{Instrument: instrument, Day: day, Reason: "expired: kept for 48h", By: wire.ByRetention, At: time.Now().UTC()}
	value, err := wire.Encode(removal)
	if err != nil {
		l.t.Fatal(err)
	}
	if _, err := l.kv(wire.CursorBucket(l.site)).Create(l.t.Context(), removal.Key(), value); err != nil {
		l.t.Fatal(err)
	}
}

// Many duplicates are deleted together: what is deleted is written down once for all.
func TestManyDuplicatesInOneRecord(t *testing.T) {
	l := start(t).site(t, "hub")
	now := time.Now().UTC()
	first := l.send(camera, now, "frame")
	const again = 150
	for i := range again {
		l.send(camera, now.Add(time.Duration(i+1)*time.Millisecond), "frame")
	}
	cfg := l.config("a")
	cfg.PartInterval = 2 * time.Second
	l.run(cfg)
	l.await("the duplicates are gone", func() bool { return len(l.stored(camera)) == 1 })
	want(t, "stored", sorted(first.Key), l.stored(camera))
	records, objects := 0, 0
	for info, err := range l.store.List(t.Context(), "deletions/", "") {
		if err != nil {
			t.Fatal(err)
		}
		body, _, err := l.store.Get(t.Context(), info.Key, objectstore.All)
		if err != nil {
			t.Fatal(err)
		}
		d, err := wire.DecodeDeletions(body)
		_ = body.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range d.Objects {
			if o.Reason != wire.DeletedDuplicate || o.Instead != first.Key {
				t.Errorf("%+v", o)
			}
		}
		records++
		objects += len(d.Objects)
	}
	if records > 10 || objects != again {
		t.Errorf("%d records of %d objects", records, objects)
	}
}

// putPart stores a part of a day.
func (l *lab) putPart(instrument string, day wire.Day, number int, records ...wire.Record) {
	l.t.Helper()
	data, err := wire.Manifest{Header: wire.ManifestHeader{Site: l.site, Instrument: instrument, Day: day}, Records: records}.Encode()
	if err != nil {
		l.t.Fatal(err)
	}
	l.put(wire.ManifestPartKey(l.site, instrument, day, number), data)
}

// An original that was reported as damaged is read before anything is removed for it. If its bytes
// are wrong, its duplicates stay, also those that are listed as a duplicate; if they are right all
// the same, duplicates are removed as ever.
func TestDuplicateOfWhatIsDamaged(t *testing.T) {
	for name, reported := range map[string]bool{"reported": true, "overwritten later": false} {
		t.Run(name, func(t *testing.T) { repeatDamaged(t, reported) })
	}
}

func repeatDamaged(t *testing.T, reported bool) {
	l := start(t).site(t, "hub")
	now := time.Now().UTC()
	if !reported { // so all that is stored now may have been written by other hands
		now = now.Add(-10 * time.Minute)
	}
	members := l.putPack(1, sent{camera, object{now, "rotten member"}}, sent{camera, object{now, "whole member"}})
	originals := slices.Concat(members, []wire.Notice{l.send(camera, now, "rotten"), l.send(camera, now, "whole")})
	l.announce(members[0])
	l.announce(members[1])
	cfg := l.config("a")
	cfg.ScrubRate = -1 // it finds out by itself
	stop := l.run(cfg)
	l.await("the originals are listed", func() bool { return len(l.ids(camera, wire.StateCurrent)) == 4 })
	stop()
	if reported {
		for _, n := range originals {
			l.damaged(n)
		}
	}
	for _, key := range []string{members[0].Key, originals[2].Key} {
		l.rot(key)
	}
	half := l.putObject(camera, object{now.Add(time.Millisecond), "rotten"})
	half.State, half.DuplicateOf = wire.StateDuplicate, originals[2].ID
	l.putPart(camera, wire.DayOf(half.ReceivedAt), 9, half.Record)

	cfg = l.config("b")
	cfg.ScrubRate = -1
	l.run(cfg)
	kept := []string{wire.OrphanID(half), l.send(camera, now.Add(time.Second), "rotten").ID, l.send(camera, now.Add(time.Second), "rotten member").ID}
	gone := []string{l.send(camera, now.Add(time.Second), "whole").ID, l.send(camera, now.Add(time.Second), "whole member").ID}
	l.await("all are listed", func() bool { return len(l.listed(camera)) == 10 })
	l.await("the duplicates of what is whole are gone", func() bool { return !l.there(gone[0]) && !l.there(gone[1]) })
	want(t, "duplicates", sorted(append(gone, half.ID)...), l.ids(camera, wire.StateDuplicate))
	l.intact(append(kept, originals[1].ID, originals[3].ID)...)
}

// damaged says what a feed server says that read an object.
func (l *lab) damaged(n wire.Notice) {
	l.t.Helper()
	value, err := wire.Encode(wire.DamageOf(n.Instrument, n.Record, wire.DamageDamaged, "feed-server-0", time.Now()))
	if err == nil {
		_, err = l.kv(wire.StatusBucket(l.site)).Put(l.t.Context(), wire.DamageKey(n.Instrument, n.ID), value)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// rot changes the word rotten in the bytes of an object.
func (l *lab) rot(key string) {
	l.t.Helper()
	info, err := l.store.Head(l.t.Context(), key)
	if err != nil {
		l.t.Fatal(err)
	}
	body, _, err := l.store.Get(l.t.Context(), key, objectstore.All)
	if err != nil {
		l.t.Fatal(err)
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err == nil {
		data = bytes.ReplaceAll(data, []byte("rotten"), []byte("ROTTEN"))
		err = l.store.Put(l.t.Context(), key, bytes.NewReader(data), info.Size, objectstore.PutOptions{Metadata: info.Metadata})
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// A duplicate that the store refuses to delete, as one under object lock, holds up nothing: what
// comes after it is listed and counted, and the cursors advance. It goes when the store lets it.
func TestDuplicateThatCannotBeDeleted(t *testing.T) {
	l := start(t).site(t, "hub")
	now := time.Now().UTC()
	stuck := l.notice(camera, object{now.Add(time.Second), "frame"}).Key
	first := l.send(camera, now, "frame")
	store := &manifesttest.Store{Store: l.store}
	store.KillAfter(-1)
	var frees atomic.Bool
	store.Refuse = func(key string, deletes bool) error {
		if deletes && key == stuck && !frees.Load() {
			return objectstore.ErrAccessDenied
		}
		return nil
	}
	cfg := l.config("a")
	cfg.Store = store
	l.run(cfg)
	l.await("the first is listed", func() bool { return len(l.listed(camera)) == 1 })
	l.send(camera, now.Add(time.Second), "frame")
	l.await("the duplicate is listed", func() bool { return len(l.listed(camera)) == 2 })
	second, gone := l.send(camera, now.Add(2*time.Second), "other"), l.send(camera, now.Add(3*time.Second), "frame")
	l.await("another duplicate is gone", func() bool { return l.is(gone.ID, wire.StateDuplicate) && !l.there(gone.Key) })
	l.await("all are counted", func() bool { return l.ledger(camera, wire.DayOf(now), wire.StepAnnounced).Objects == 4 })
	const refused, swept = "substorm_archivist_deletions_refused_total", "substorm_sweep_complete_timestamp_seconds"
	last := gauge(t, cfg, swept)
	l.await("the sweep tries again, and ends", func() bool {
		return counted(t, cfg.Metrics.(*prometheus.Registry), refused, "Refused") > 2 && gauge(t, cfg, swept) > last
	})
	want(t, "stored", sorted(first.Key, stuck, second.Key), l.stored(camera))
	if failed := gauge(t, cfg, "substorm_archivist_failures_total"); failed != 0 {
		t.Errorf("the archivist gave up %v times", failed)
	}
	frees.Store(true)
	l.await("it goes", func() bool { return !l.there(stuck) })
}
