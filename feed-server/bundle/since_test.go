// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// folder is where a client unpacks all bundles of one question.
type folder struct {
	testing.TB
	dir string
}

// unpack unpacks a bundle over the others, and returns its since.
func (f folder) unpack(l *archivetest.Lab, query string) string {
	f.Helper()
	a := l.Get("/bundle/allsky-1.tar" + query)
	if a.Status != http.StatusOK || a.Err != nil {
		f.Fatalf("%s: %d %v", query, a.Status, a.Err)
	}
	tar := exec.CommandContext(f.Context(), "tar", "-xf", "-")
	tar.Dir, tar.Stdin = f.dir, strings.NewReader(a.Body)
	if out, err := tar.CombinedOutput(); err != nil {
		f.Fatalf("tar: %v\n%s", err, out)
	}
	return "?" + since(unpack(f, strings.NewReader(a.Body)))
}

// listed returns what the lists in the folder say together: digests by path, or states.
func (f folder) listed() map[string]string {
	f.Helper()
	all := map[string]string{}
	lists, err := filepath.Glob(filepath.Join(f.dir, archivetest.Site, "bundle.d", archivetest.Camera, "*.jsonl"))
	if err != nil || len(lists) == 0 {
		f.Fatal("no lists", err)
	}
	for _, name := range lists {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for i, text := range strings.Split(strings.TrimSpace(string(data)), "\n") {
			if i == 0 {
				continue // its head
			}
			var l struct{ Path, State, SHA256 string }
			if err := json.Unmarshal([]byte(text), &l); err != nil {
				f.Fatal(err)
			}
			if was, twice := all[l.Path]; twice {
				f.Errorf("%s is listed as %s and as %s", l.Path, was, text)
			}
			all[l.Path] = l.State + l.SHA256
			if l.State != "" {
				all[l.Path] = l.State
			}
		}
	}
	return all
}

// A whole bundle and then its differences, unpacked in one folder, leave lists there that together
// describe the folder.
func TestOneFolder(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	today := time.Now().UTC().Truncate(24 * time.Hour)
	f := folder{t, t.TempDir()}
	want := map[string]string{}
	put := func(path, body string, received time.Duration, change ...func(*wire.Record)) wire.Record {
		r := l.Put(archivetest.Camera, path, body, append(change, at(today.Add(received)))...)
		l.Wait(r)
		want[path] = r.Digest.String()
		return r
	}
	right := func(when string) {
		t.Helper()
		if diff := cmp.Diff(want, f.listed()); diff != "" {
			t.Errorf("%s (-want +listed):\n%s", when, diff)
		}
		for path, digest := range want {
			data, err := os.ReadFile(filepath.Join(f.dir, archivetest.Site, archivetest.Camera, path))
			if got := sha256.Sum256(data); len(digest) == 64 && (err != nil || wire.Digest(got).String() != digest) {
				t.Errorf("%s: of %s there is %.20q, %v", when, path, data, err)
			}
		}
	}
	put("a.jpg", "a", time.Second)
	one := put("b.jpg", "b", 2*time.Second)
	next := f.unpack(l, "")
	right("a whole one")
	put("c.jpg", "c", 3*time.Second)
	next = f.unpack(l, next)
	right("one more")
	put("d.jpg", "d", 4*time.Second)
	f.unpack(l, next) // and again, as if it had not come whole
	next = f.unpack(l, next)
	right("another")
	put("0.jpg", "late", time.Millisecond)
	next = f.unpack(l, next)
	right("a late one")
	one.State, one.Reason = wire.StateRetracted, "a lamp"
	l.Announce(archivetest.Camera, one)
	l.Until("it is gone", func() bool { return l.Get("/archive/allsky-1/b.jpg").Status == http.StatusGone })
	l.List()
	want["b.jpg"] = string(wire.StateRetracted)
	next = f.unpack(l, next)
	right("one is gone")
	put("e.jpg", "e", 5*time.Second)
	f.unpack(l, next)
	right("and one more")
}

// An object that was left out of a bundle because it was damaged is sent once it is whole, and
// until then nothing else is sent again because of it.
func TestRepaired(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	today := time.Now().UTC().Truncate(24 * time.Hour)
	store := func(r wire.Record, body string) {
		t.Helper()
		if err := l.Store.Put(t.Context(), r.Key, strings.NewReader(body), int64(len(body)), objectstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const many = 70 // more than a token names
	var rotten []wire.Record
	for i := range many {
		r := l.Put(archivetest.Camera, fmt.Sprintf("many/%02d.jpg", i), fmt.Sprintf("m%03d", i), at(today.AddDate(0, 0, -1)))
		store(r, "rust")
		rotten = append(rotten, r)
	}
	lost := l.Put(archivetest.Camera, "a.jpg", "one", at(storm)) // of a month
	if err := l.Store.Delete(t.Context(), lost.Key); err != nil {
		t.Fatal(err)
	}
	l.Put(archivetest.Camera, "b.jpg", "two", at(storm.AddDate(0, 0, 1)))
	bent := l.Put(archivetest.Camera, "now/1.jpg", "three", at(today.Add(time.Second)))
	store(bent, "there")
	l.Wait(l.Put(archivetest.Camera, "now/2.jpg", "four", at(today.Add(2*time.Second))))
	l.List()
	const of = "/bundle/allsky-1.tar"
	listOf := func(day time.Time) string { return "bundle.d/allsky-1/" + day.Format(time.DateOnly) + ".jsonl" }
	first := get(l, of)
	first.want(t, "what is whole", listOf(storm), "allsky-1/b.jpg", listOf(storm.AddDate(0, 0, 1)), listOf(today.AddDate(0, 0, -1)), "allsky-1/now/2.jpg", listOf(today))
	if first.end.Damaged != many+2 {
		t.Errorf("%d are damaged", first.end.Damaged)
	}
	second := get(l, of+"?"+since(first))
	head := l.Get(of + "?" + since(second)).Header.Get("Etag")
	for i, r := range rotten {
		store(r, fmt.Sprintf("m%03d", i))
	}
	third := get(l, of+"?"+since(second))
	if third.end.Objects != many+1 || third.end.Damaged != 2 { // now/2.jpg came again with its day
		t.Errorf("of %d that are whole again came: %+v", many, third.end)
	}
	get(l, of+"?"+since(third)).want(t, "two lack still")
	store(lost, "one")
	fourth := get(l, of+"?"+since(third))
	fourth.want(t, "one that was lost", "allsky-1/a.jpg", listOf(storm))
	l.Wait(l.Put(archivetest.Camera, "now/3.jpg", "five", at(today.Add(3*time.Second))))
	store(bent, "three")
	fifth := get(l, of+"?"+since(fourth))
	fifth.want(t, "one more, and the other", "allsky-1/now/1.jpg", "allsky-1/now/3.jpg", listOf(today))
	if list := fifth.files[listOf(today)]; strings.Contains(list, "damaged") || strings.Count(list, "\n") != 4 {
		t.Errorf("its list: %s", list)
	}
	get(l, of+"?"+since(fifth)).want(t, "nothing more")
	if a := l.Get(of+"?"+since(second), "If-None-Match", head); a.Status != http.StatusOK {
		t.Errorf("who has something that lacked is answered %d", a.Status)
	}
}

// An object that a bundle lacked is not forgotten while it is retracted.
func TestLacksMeanwhile(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	lost := l.Put(archivetest.Camera, "a.jpg", "one", at(storm))
	if err := l.Store.Delete(t.Context(), lost.Key); err != nil {
		t.Fatal(err)
	}
	l.Wait(l.Put(archivetest.Camera, "b.jpg", "two", at(storm)))
	l.List()
	first := get(l, "/bundle/allsky-1.tar")
	becomes := func(state wire.State, status int, at func(*time.Time)) {
		t.Helper()
		now := time.Now()
		lost.State, lost.RetractedAt, lost.RestoredAt = state, nil, nil
		at(&now)
		l.Announce(archivetest.Camera, lost)
		l.Until("it is "+string(state), func() bool { return l.Get("/archive/allsky-1/a.jpg").Status == status })
	}
	becomes(wire.StateRetracted, http.StatusGone, func(at *time.Time) { lost.RetractedAt = at })
	second := get(l, "/bundle/allsky-1.tar?"+since(first))
	if err := l.Store.Put(t.Context(), lost.Key, strings.NewReader("one"), 3, objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	becomes(wire.StateCurrent, http.StatusOK, func(at *time.Time) { lost.RestoredAt = at })
	l.List()
	if third := get(l, "/bundle/allsky-1.tar?"+since(second)); third.files["allsky-1/a.jpg"] != "one" {
		t.Errorf("what lacked is there again, and does not come: %v", third.names)
	}
}

// An object that was under embargo is sent when the embargo is over, though no manifest changed.
func TestEmbargoEnds(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	now := time.Now().UTC()
	l.Put(archivetest.Camera, "old.jpg", "old", at(now), observed(now.AddDate(0, 0, -300)))
	l.Wait(l.Put(archivetest.Camera, "new.jpg", "new", at(now.Add(time.Second)), observed(now)))
	l.List()
	list := "bundle.d/allsky-1/" + now.Format(time.DateOnly) + ".jsonl"
	declared(l, func(in *wire.InstrumentEntry) {
		in.Access = &wire.AccessEntry{Archive: wire.AccessPublic, EmbargoMillis: time.Hour.Milliseconds()}
	})
	first := get(l, "/bundle/allsky-1.tar")
	first.want(t, "under embargo", "allsky-1/old.jpg", list)
	declared(l, func(in *wire.InstrumentEntry) { in.Access = archivetest.Public })
	second := get(l, "/bundle/allsky-1.tar?"+since(first))
	second.want(t, "when it is over", "allsky-1/new.jpg", list)
	get(l, "/bundle/allsky-1.tar?"+since(second)).want(t, "nothing more")
}
