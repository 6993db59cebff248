// SPDX-License-Identifier: Apache-2.0

package index

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// Readers find every part that was closed, from the first flush after it on, and each version; and
// nothing is read to publish them.
func TestIndex(t *testing.T) {
	l := newLab(t)
	k := l.keeper()
	if l.listed() != 1 {
		t.Errorf("readers of an empty archive wait for its first part: it is listed up to %d", l.listed())
	}
	l.flush(k)
	day := wire.DayOf(noon)
	for i := range 5 {
		at := noon.Add(time.Duration(i) * time.Minute)
		l.part(k, camera, l.record(camera, at), l.record(camera, at.Add(time.Second)))
		l.part(k, mag, l.record(mag, at))
		before := l.listed()
		l.flush(k)
		l.check("a part")
		if l.listed() <= before {
			t.Errorf("listed up to %d, before that %d", l.listed(), before)
		}
	}
	if days, entry := l.indexed(camera); len(days) != 1 || entry.Root != 0 || days[0].Entries != 10 || len(days[0].Parts) != 1 {
		t.Errorf("%+v", entry)
	}

	l.compact(k, camera, day)
	l.check("a version") // without a flush
	if _, entry := l.indexed(camera); entry.Root != 1 || entry.RootIncarnation != "two" || len(entry.Open) != 0 {
		t.Errorf("a closed day is in no root: %+v", entry)
	}
	late := l.record(camera, noon.Add(time.Hour))
	observed := noon.Add(-time.Hour)
	late.ObservedFrom, late.ObservedTo = &observed, &observed
	l.part(k, camera, late)
	l.flush(k)
	l.check("a late part")
	if _, entry := l.indexed(camera); len(entry.Open) != 1 || entry.LatestObserved == nil || !entry.LatestObserved.Equal(observed) {
		t.Errorf("%+v", entry)
	}
	for range 3 {
		l.compact(k, camera, day)
	}
	l.check("more versions")
	if roots := l.roots(camera); len(roots) != 2 || roots[1] != 4 {
		t.Errorf("roots %v, want the last two of four", roots)
	}
	// Many days at a time make a root too.
	for i := range 8 {
		l.part(k, mag, l.record(mag, noon.AddDate(0, 0, i-20)))
	}
	l.flush(k)
	l.check("many days")
	if _, entry := l.indexed(mag); entry.Root != 1 {
		t.Errorf("%+v", entry)
	}
	retracted := l.record(mag, noon)
	retracted.State = wire.StateRetracted
	l.part(k, mag, retracted)
	l.flush(k)
	l.check("a change")
}

// The next keeper finds whatever is lost of the bucket or the entries; days that the roots describe
// are not read again.
func TestIndexIsMadeAnew(t *testing.T) {
	l := newLab(t)
	k := l.idle() // no keeper was there before
	for i := range 12 {
		l.part(k, camera, l.record(camera, noon.AddDate(0, 0, -i)))
		l.part(k, mag, l.record(mag, noon.AddDate(0, 0, -i)))
	}
	l.moveCursor()
	if days, _ := l.indexed(camera); days != nil || l.listed() != 0 {
		t.Fatal("nobody keeps the index, and there is one")
	}
	k = l.keeper()
	l.check("the first keeper")
	if l.listed() != l.Next {
		t.Errorf("it is listed up to %d, and the writer has come to %d", l.listed(), l.Next)
	}
	l.flush(k)

	for name, lose := range map[string]func(){
		"the bucket": func() {
			if err := l.JetStream.DeleteKeyValue(t.Context(), wire.IndexBucket(site)); err != nil {
				t.Fatal(err)
			}
			l.createBucket()
		},
		"the place": func() { l.write(wire.IndexListedKey, nil) },
		"an entry's sense": func() {
			l.write(wire.IndexListedKey, nil)
			l.write(camera, []byte(`{"format":1,"open":"no"}`))
		},
		"a root": func() {
			l.write(wire.IndexListedKey, nil)
			for _, n := range l.roots(mag) {
				if err := l.Store.Delete(t.Context(), wire.RootKey(site, mag, n)); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		lose()
		l.Store.Gets()
		k = l.keeper()
		l.flush(k)
		for _, key := range l.Store.Gets() {
			if f, err := wire.ParseManifestKey(key); err == nil && f.Instrument == camera {
				t.Errorf("%s lost: %s is read although the root tells of it", name, key)
			}
		}
		l.check(name + " lost")
	}
}

// write puts a value into the index; nil removes it.
func (l *lab) write(key string, value []byte) {
	l.Helper()
	kv, err := l.JetStream.KeyValue(l.Context(), wire.IndexBucket(site))
	if err == nil && value == nil {
		err = kv.Delete(l.Context(), key)
	} else if err == nil {
		_, err = kv.Put(l.Context(), key, value)
	}
	if err != nil {
		l.Fatal(err)
	}
}

// The index finds files that were stored meanwhile by a gateway that knows no index, or by
// one that was killed between part and entry.
func TestIndexCatchesUp(t *testing.T) {
	l := newLab(t)
	k := l.keeper()
	l.part(k, camera, l.record(camera, noon))
	l.flush(k)

	older := l.idle()
	l.part(older, camera, l.record(camera, noon.Add(time.Minute)))
	l.part(older, mag, l.record(mag, noon.AddDate(0, 0, -3)))
	l.moveCursor()
	k = l.keeper()
	l.check("another without an index") // takeUp stores what it found
	l.flush(k)
	if l.listed() != l.Next {
		t.Errorf("listed up to %d, want %d", l.listed(), l.Next)
	}

	// Killed after the part: the next writer sees it in the files of the day.
	killed := l.idle()
	l.part(killed, camera, l.record(camera, noon.Add(2*time.Minute)))
	k = l.keeper()
	files, err := manifest.List(t.Context(), l.Store, site, camera, wire.DayOf(noon))
	if err != nil {
		t.Fatal(err)
	}
	k.Seen(t.Context(), camera, wire.DayOf(noon), files)
	l.flush(k)
	l.check("a kill after the part")

	// Killed after the version: the compactor sees it.
	killed = l.idle()
	l.compact(killed, camera, wire.DayOf(noon))
	k = l.keeper()
	if files, err = manifest.List(t.Context(), l.Store, site, camera, wire.DayOf(noon)); err != nil {
		t.Fatal(err)
	}
	k.Seen(t.Context(), camera, wire.DayOf(noon), files)
	l.flush(k)
	l.check("a kill after the version")
}

// An index that cannot be kept holds nothing up, and is complete again later.
func TestIndexGivenUp(t *testing.T) {
	l := newLab(t)
	k := l.keeper()
	l.part(k, camera, l.record(camera, noon))
	l.flush(k)
	was := l.listed()

	l.Store.Refuse = func(key string, _ bool) error {
		if strings.HasPrefix(key, "manifest/"+site+"/"+camera+"/r-") {
			return objectstore.ErrUnavailable
		}
		return nil
	}
	l.compact(k, camera, wire.DayOf(noon))
	l.part(k, mag, l.record(mag, noon))
	l.flush(k)
	if l.listed() != was {
		t.Errorf("the index says that it goes up to %d, it was given up at %d", l.listed(), was)
	}
	l.Store.Refuse = nil
	if err := k.takeUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.flush(k)
	l.check("taken up again")
	if l.listed() != l.Next {
		t.Errorf("listed up to %d, want %d", l.listed(), l.Next)
	}

	// A zombie's writes are stopped by the revisions.
	zombie := l.keeper()
	k = l.keeper()
	l.part(zombie, camera, l.record(camera, noon.Add(time.Minute)))
	l.part(k, camera, l.record(camera, noon.Add(2*time.Minute)))
	l.flush(k)
	zombie.Flush(t.Context(), wire.StreamCursor{Epoch: l.Epoch, Next: 1})
	l.check("beside a zombie")
	if l.listed() != l.Next {
		t.Errorf("listed up to %d, want %d", l.listed(), l.Next)
	}

	// Without a bucket nothing is kept, and nothing fails.
	if err := l.JetStream.DeleteKeyValue(t.Context(), wire.IndexBucket(site)); err != nil {
		t.Fatal(err)
	}
	l.part(k, camera, l.record(camera, noon.Add(3*time.Minute)))
	l.flush(k)
	if err := k.takeUp(t.Context()); err == nil {
		t.Error("there is no bucket, and no error")
	}
	k.giveUp()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- k.Run(ctx) }()
	l.createBucket()
	for range testenv.Attempts() {
		if l.listed() == l.Next {
			break
		}
		l.flush(k)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	l.check("a bucket that came later")
}

// A bucket that was lost while nothing came is filled again, and not at the next notice.
func TestBucketIsLostAtRest(t *testing.T) {
	l := newLab(t)
	k := l.keeper()
	l.part(k, camera, l.record(camera, noon), l.record(camera, noon.Add(time.Second)))
	l.part(k, mag, l.record(mag, noon))
	l.flush(k)
	l.flush(k)
	if !k.Complete() {
		t.Error("the index is given up without cause")
	}
	if err := l.JetStream.DeleteKeyValue(t.Context(), wire.IndexBucket(site)); err != nil {
		t.Fatal(err)
	}
	l.createBucket()
	l.flush(k)
	if k.Complete() {
		t.Error("nobody sees that the bucket is empty")
	}
	if err := k.takeUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.flush(k)
	l.check("made anew")
	if l.listed() != l.Next {
		t.Errorf("listed up to %d, want %d", l.listed(), l.Next)
	}
}

// A nil keeper is one of an archivist without an index.
func TestNoKeeper(t *testing.T) {
	var k *Keeper
	k.Part(t.Context(), camera, "2026-11-21", 1, 0, nil)
	k.Seen(t.Context(), camera, "2026-11-21", manifest.Files{InEffect: []string{"x"}})
	k.Compacted(t.Context(), camera, "2026-11-21")
	k.Flush(t.Context(), wire.StreamCursor{})
}
