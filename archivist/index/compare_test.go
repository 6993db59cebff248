// SPDX-License-Identifier: Apache-2.0

package index

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// remove removes files of manifests.
func (l *lab) remove(keys ...string) {
	l.Helper()
	for _, key := range keys {
		if err := l.Store.Delete(l.Context(), key); err != nil {
			l.Fatal(err)
		}
	}
}

// damages returns what is reported of the Site's archive.
func (l *lab) damages() (all []wire.Damage) {
	l.Helper()
	status := l.KV(wire.StatusBucket(site))
	keys, err := status.ListKeysFiltered(l.Context(), wire.DamageKeys)
	if err != nil {
		l.Fatal(err)
	}
	for key := range keys.Keys() {
		d, revision, err := stream.Record[wire.Damage](l.Context(), status, key)
		if err != nil || revision == 0 {
			l.Fatalf("%s: revision %d, %v", key, revision, err)
		}
		all = append(all, d)
	}
	return all
}

// notedLost says whether the sweep of the next lease knows that files of manifests are lost.
func (l *lab) notedLost() bool {
	l.Helper()
	_, err := l.KV(wire.CursorBucket(site)).Get(l.Context(), wire.LostManifestsKey)
	if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		l.Fatal(err)
	}
	return err == nil
}

// The files of an open day are lost while an archivist works. The index still names the day, which is reported as missing, and programs that list
// objects read it again. Objects that are listed from then on under the numbers of the lost files are in the index.
func TestManifestsAreLost(t *testing.T) {
	l := newLab(t)
	k := l.keeper()
	for i := range 3 {
		l.part(k, camera, l.record(camera, noon.Add(time.Duration(i)*time.Minute)))
	}
	l.part(k, mag, l.record(mag, noon))
	l.flush(k)
	day := wire.DayOf(noon)
	l.remove(l.Keys(wire.ManifestPrefix(site, camera, day))...)

	for range 2 { // it is said once
		if err := k.compareDays(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]LostDay{{camera, day}}, k.TakeLost()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !l.notedLost() {
		t.Error("the next lease would not know that manifests are lost")
	}
	if d := l.damages(); len(d) != 1 || d[0].Instrument != camera || d[0].Day != day || d[0].Cause != wire.DamageMissing {
		t.Errorf("reported: %+v", d)
	}
	if days, _ := l.indexed(camera); len(days) != 1 || days[0].Entries != 3 {
		t.Errorf("the index forgot the day: %+v", days)
	}

	l.parts[dayKey{camera, day}] = 0
	l.part(k, camera, l.record(camera, noon), l.record(camera, noon.Add(time.Minute)))
	l.flush(k)
	l.check("listed again")
	l.part(k, camera, l.record(camera, noon.Add(2*time.Minute)))
	l.flush(k)
	l.check("and more")
}

// An entry and a root that cannot be read hold up the comparison of no other instrument.
func TestCompareBesideUnreadable(t *testing.T) {
	l := newLab(t)
	k := l.keeper()
	day := wire.DayOf(noon)
	for _, instrument := range []string{camera, mag} {
		l.part(k, instrument, l.record(instrument, noon))
	}
	l.flush(k)
	index := l.KV(wire.IndexBucket(site))
	l.Put(wire.RootKey(site, "radar-1", 7), l.newerRoot())
	value, err := wire.Encode(wire.IndexEntry{Root: 7})
	if err == nil {
		_, err = index.Put(t.Context(), "radar-1", value)
	}
	if err == nil {
		_, err = index.Put(t.Context(), camera, []byte("no entry"))
	}
	if err != nil {
		t.Fatal(err)
	}
	l.remove(l.Keys(wire.ManifestPrefix(site, mag, day))...)

	err = k.compareDays(t.Context(), true)
	if !errors.Is(err, wire.ErrMalformed) || !errors.Is(err, wire.ErrNewerFormat) || !strings.Contains(err.Error(), "entry "+camera) || !strings.Contains(err.Error(), "radar-1") {
		t.Errorf("error: %v", err)
	}
	if diff := cmp.Diff([]LostDay{{mag, day}}, k.TakeLost()); diff != "" || !k.Complete() {
		t.Errorf("index complete: %v; lost days (-want +got):\n%s", k.Complete(), diff)
	}
}

// newerRoot is one of a newer Substorm.
func (l *lab) newerRoot() []byte {
	l.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		l.Fatal(err)
	}
	return z.EncodeAll([]byte(`{"format":2}`+"\n"), nil)
}

// A keeper that makes the index again says of each day that lost its manifest that it is lost, whether a root or an entry named the day.
func TestRebuildFindsLostDays(t *testing.T) {
	l := newLab(t)
	k := l.keeper()
	rooted, open := wire.DayOf(noon.AddDate(0, 0, -1)), wire.DayOf(noon)
	l.part(k, camera, l.record(camera, noon.AddDate(0, 0, -1)))
	l.compact(k, camera, rooted) // makes a root
	l.part(k, camera, l.record(camera, noon))
	l.part(k, camera, l.record(camera, noon.AddDate(0, 0, 1))) // stays
	l.flush(k)
	rebuild := func() {
		t.Helper()
		if err := l.KV(wire.IndexBucket(site)).Delete(t.Context(), wire.IndexListedKey); err != nil {
			t.Fatal(err)
		}
		k = l.keeper()
	}
	rebuild()
	l.check("nothing is lost")
	for _, day := range []wire.Day{rooted, open} {
		l.remove(l.Keys(wire.ManifestPrefix(site, camera, day))...)
	}
	rebuild()
	if diff := cmp.Diff([]LostDay{{camera, rooted}, {camera, open}}, k.TakeLost()); diff != "" {
		t.Errorf("lost days (-want +got):\n%s", diff)
	}
	if d := l.damages(); len(d) != 2 {
		t.Errorf("reported: %+v", d)
	}
	l.check("the day that stays")
}

// In a copy of a Site that was made while it ran, index and bucket are of different moments. Whichever is older, the next
// archivist makes the index say what the bucket has, also where the bucket has another file under a number.
func TestBucketOfAnotherMoment(t *testing.T) {
	day := wire.DayOf(noon)
	part := func(n int) string { return wire.ManifestPartKey(site, camera, day, n) }
	for name, change := range map[string]func(l *lab){
		"the bucket is older": func(l *lab) { l.remove(part(4), part(3)) },
		"the bucket is newer": func(l *lab) {
			l.PutPart(camera, day, 5, l.record(camera, noon.Add(time.Hour)))
		},
		"another part has a number": func(l *lab) {
			l.remove(part(4))
			l.PutPart(camera, day, 4, l.record(camera, noon.Add(time.Hour)), l.record(camera, noon.Add(2*time.Hour)))
		},
		"a part in the middle is gone": func(l *lab) { l.remove(part(2)) },
		"the root is gone": func(l *lab) {
			for _, n := range l.roots(camera) {
				l.remove(wire.RootKey(site, camera, n))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			k := l.keeper()
			l.part(k, camera, l.record(camera, noon.AddDate(0, 0, -1)))
			l.compact(k, camera, wire.DayOf(noon.AddDate(0, 0, -1))) // makes a root
			for i := range 4 {
				l.part(k, camera, l.record(camera, noon.Add(time.Duration(i)*time.Minute)))
			}
			l.flush(k)
			change(l)

			k = l.keeper()
			if err := k.compareDays(t.Context(), true); err != nil {
				t.Log(err) // the index was given up
				if err := k.takeUp(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			l.flush(k)
			l.check("compared")
			if lost := name != "the bucket is newer" && name != "the root is gone"; l.notedLost() != lost {
				t.Errorf("it is noted that manifests are lost: %t, want %t", !lost, lost)
			}
		})
	}
}

// The same where the writer of manifests says first what it sees of a day.
func TestSeenOfAnOlderBucket(t *testing.T) {
	l := newLab(t)
	k := l.keeper()
	day := wire.DayOf(noon)
	for i := range 4 {
		l.part(k, camera, l.record(camera, noon.Add(time.Duration(i)*time.Minute)))
	}
	l.flush(k)
	l.remove(wire.ManifestPartKey(site, camera, day, 3), wire.ManifestPartKey(site, camera, day, 4))

	k = l.keeper()
	files, err := manifest.List(t.Context(), l.Store, site, camera, day)
	if err != nil {
		t.Fatal(err)
	}
	k.Seen(t.Context(), camera, day, files)
	l.parts[dayKey{camera, day}] = 2
	l.part(k, camera, l.record(camera, noon.Add(time.Hour)))
	l.flush(k)
	l.check("a part under a number that the index knew")
}
