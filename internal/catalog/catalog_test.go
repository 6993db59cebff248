// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/wire"
)

func paths(records []*wire.Record) []string {
	var all []string
	for _, r := range records {
		all = append(all, string(r.State)+" "+r.Published())
	}
	return all
}

// day returns a day, and checks its tag against the one returned without the day: the tag may change in between.
func (l *lab) day(c *Catalog, instrument string, day wire.Day) *Day {
	l.Helper()
	before := l.tag(c, instrument, day)
	d, err := c.Day(l.Context(), instrument, day)
	if err != nil {
		l.Fatal(err)
	}
	if after := l.tag(c, instrument, day); d.Tag != before && d.Tag != after {
		l.Errorf("a day with tag %s is said to have %s, and %s", d.Tag, before, after)
	}
	return d
}

func (l *lab) tag(c *Catalog, instrument string, day wire.Day) string {
	l.Helper()
	tag, err := c.DayTag(l.Context(), instrument, day)
	if err != nil {
		l.Fatal(err)
	}
	return tag
}

func (l *lab) find(c *Catalog, path string) wire.Record {
	l.Helper()
	r, err := c.Find(l.Context(), camera, path)
	if err != nil && !errors.Is(err, ErrNotFound) {
		l.Fatal(err)
	}
	return r
}

func (l *lab) same(what string, want, got any) {
	l.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		l.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// An object is in its day when it was announced, and once when it is listed; the tag
// changes with what the day holds and with nothing else.
func TestDay(t *testing.T) {
	l := newLab(t)
	today := wire.DayOf(noon)
	a, b, again := object(noon, "x/b.jpg"), object(noon.Add(time.Second), "x/a.jpg"), object(noon.Add(2*time.Second), "x/c.jpg")
	again.State, again.DuplicateOf = wire.StateDuplicate, a.ID
	l.Announce(camera, a)
	l.part(camera, a)
	l.flush()
	c := l.catalog(nil)
	l.ready(c)
	one := l.day(c, camera, today)
	l.same("listed", []string{"Current x/b.jpg"}, paths(one.Records))
	if !one.Changed.Equal(noon) {
		t.Errorf("it changed at %s", one.Changed)
	}

	l.Announce(camera, b)
	l.ready(c)
	two := l.day(c, camera, today)
	l.same("announced", []string{"Current x/a.jpg", "Current x/b.jpg"}, paths(two.Records))
	if two.Tag == one.Tag || !two.Changed.Equal(noon.Add(time.Second)) {
		t.Errorf("tag %s, changed at %s", two.Tag, two.Changed)
	}
	if other := l.day(l.ready2(), camera, today); other.Tag != two.Tag {
		t.Errorf("another catalog says tag %s, not %s", other.Tag, two.Tag)
	}

	l.part(camera, b, again)
	l.flush()
	l.ready(c)
	if n := l.fresh(c); n != 0 {
		t.Errorf("%d notices lie over what lists them", n)
	}
	three := l.day(c, camera, today)
	l.same("listed too", []string{"Current x/a.jpg", "Current x/b.jpg"}, paths(three.Records))
	if three.Tag == two.Tag {
		t.Error("other files, and the same tag")
	}
	l.compact(camera, today)
	l.flush()
	l.ready(c)
	l.same("compacted", paths(three.Records), paths(l.day(c, camera, today).Records))
	l.same("of another day", 0, len(l.day(c, camera, "2026-11-20").Records))
	l.same("of an unknown instrument", 0, len(l.day(c, "nobody", today).Records))

	l.Store.Gets()
	for range 5 {
		l.day(c, camera, today)
	}
	if asked := l.Store.Gets(); len(asked) != 0 {
		t.Errorf("what is known is asked for again: %q", asked)
	}
}

// ready2 returns another catalog that is up to date.
func (l *lab) ready2() *Catalog {
	l.Helper()
	c := l.catalog(nil)
	l.ready(c)
	return c
}

// An announced object shows only if the manifest's writer will publish it in the same way.
func TestFresh(t *testing.T) {
	l := newLab(t)
	today := wire.DayOf(noon)
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	a, b, d := object(at(0), "a.jpg"), object(at(1), "b.jpg"), object(at(2), "d.jpg")
	named := object(at(3), "")
	named.ID = wire.NamedKey(site, camera, "frame.jpg", 1)
	named.Key, named.Name = named.ID, "frame.jpg"
	l.part(camera, a, b, d, named)
	l.flush()
	var window atomic.Int64
	window.Store(int64(time.Hour))
	c := l.catalog(func(cfg *Config) {
		cfg.RepeatWindow = func(string) time.Duration { return time.Duration(window.Load()) }
		cfg.Naming = func(instrument string) string {
			if instrument == mag {
				return "{year}{doy}/{sequence}.jpg"
			}
			return ""
		}
	})
	duplicate := object(at(10), "e.jpg")
	gone := duplicate
	gone.State, gone.DuplicateOf = wire.StateDuplicate, a.ID
	retracted := b
	now := at(20)
	retracted.State, retracted.Reason, retracted.RetractedAt = wire.StateRetracted, "dark", &now
	version := named
	version.ID = wire.NamedKey(site, camera, "frame.jpg", 2)
	version.Key, version.Version, version.Supersedes = version.ID, 2, named.ID
	version.ReceivedAt = at(12)
	clash, twice := object(at(11), "a.jpg"), object(at(13), "f.jpg")
	clash2 := object(at(14), "f.jpg")
	marked := d
	marked.State, marked.DuplicateOf = wire.StateDuplicate, a.ID
	l.Announce(camera, a, duplicate, clash, version, twice, clash2, gone, retracted, marked)
	l.ready(c)
	day := l.day(c, camera, today)
	l.same("the day", []string{"Current a.jpg", "Retracted b.jpg", "Current f.jpg", "Superseded n/frame.jpg", "Current n/frame.jpg"}, paths(day.Records))
	if !day.Changed.Equal(now) {
		t.Errorf("changed at %s", day.Changed)
	}
	if r := l.find(c, "n/frame.jpg"); r.Version != 2 {
		t.Errorf("the current version is %d", r.Version)
	}
	if r := l.find(c, "b.jpg"); r.State != wire.StateRetracted || r.Reason != "dark" {
		t.Errorf("%+v", r)
	}

	repeat, next := object(at(16), "g.jpg"), object(at(17), "h.jpg")
	repeat.Digest, next.Digest = b.Digest, twice.Digest
	l.Announce(camera, repeat, next)
	l.ready(c)
	l.same("what may be duplicates", len(day.Records), len(l.day(c, camera, today).Records))
	l.part(camera, repeat)
	l.flush()
	l.ready(c)
	if r := l.find(c, "g.jpg"); r.State != wire.StateCurrent {
		t.Errorf("what is listed as an object of its own: %+v", r)
	}

	numbered := object(at(15), "")
	l.Announce(mag, numbered)
	l.ready(c)
	l.same("of which nobody knows the number", 0, len(l.day(c, mag, today).Records))
	numbered.Path = "2026325/1.jpg"
	l.part(mag, numbered)
	l.flush()
	l.ready(c)
	l.same("numbered", []string{"Current 2026325/1.jpg"}, paths(l.day(c, mag, today).Records))
	window.Store(0)
	equal := object(at(18), "k.jpg")
	equal.Digest = b.Digest
	l.Announce(camera, equal)
	l.ready(c)
	if r := l.find(c, "k.jpg"); r.ID != equal.ID {
		t.Errorf("equal objects are real, and one does not show: %+v", r)
	}
}

// A path is found in whichever day, and only those are read that may hold it.
func TestFind(t *testing.T) {
	l := newLab(t)
	day := func(i int) time.Time { return noon.AddDate(0, 0, -i) }
	path := func(i int, name string) string { return day(i).Format("2006/01/02/") + name }
	for i := range 20 {
		records := []wire.Record{object(day(i), path(i, "a.jpg")), object(day(i).Add(time.Second), path(i, "b.jpg"))}
		// One object of each day, all in one folder.
		records = append(records, object(day(i).Add(2*time.Second), fmt.Sprintf("0/%s.jpg", day(i).Format("20060102"))))
		l.part(camera, records...)
	}
	l.root(camera)
	// A name whose versions are of several days.
	var versions []wire.Record
	for v := 1; v <= 3; v++ {
		r := object(day(9-3*v).Add(time.Hour), "")
		r.ID = wire.NamedKey(site, camera, "latest.jpg", v)
		r.Key, r.Name, r.Version = r.ID, "latest.jpg", v
		if v == 1 {
			r.Version = 0
		} else {
			r.Supersedes = versions[v-2].ID
		}
		versions = append(versions, r)
		l.part(camera, r)
		if v > 1 {
			old := versions[v-2]
			old.State = wire.StateSuperseded
			l.part(camera, old)
		}
	}
	l.flush()
	c := l.catalog(nil)
	l.ready(c)

	l.Store.Gets()
	if r := l.find(c, path(13, "b.jpg")); r.Path != path(13, "b.jpg") {
		t.Errorf("found %+v", r)
	}
	want := []string{wire.RootKey(site, camera, 1), wire.ManifestPartKey(site, camera, wire.DayOf(day(13)), 1)}
	l.same("read", want, l.Store.Gets())
	if r := l.find(c, "0/"+day(15).Format("20060102")+".jpg"); !r.ReceivedAt.Equal(day(15).Add(2 * time.Second)) {
		t.Errorf("found %+v", r)
	}
	if asked := l.Store.Gets(); len(asked) > 1 {
		t.Errorf("for one of a flat folder %q are read", asked)
	}
	for _, none := range []string{"", "x", "0", "0/x.jpg", path(3, "c.jpg"), path(40, "a.jpg"), path(3, "a.jpg") + "/x", "../x", "n/"} {
		if _, err := c.Find(t.Context(), camera, none); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", none, err)
		}
	}
	if _, err := c.Find(t.Context(), "nobody", path(3, "a.jpg")); !errors.Is(err, ErrNotFound) {
		t.Errorf("of an unknown instrument: %v", err)
	}

	if r := l.find(c, "n/latest.jpg"); r.ID != versions[2].ID {
		t.Errorf("the current version is %+v", r)
	}
	all, err := c.Versions(t.Context(), camera, "n/latest.jpg")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range all {
		got = append(got, fmt.Sprint(r.ID, " ", r.State))
	}
	l.same("versions", []string{versions[0].ID + " Superseded", versions[1].ID + " Superseded", versions[2].ID + " Current"}, got)
	if _, err := c.Versions(t.Context(), camera, "n/other.jpg"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}

	// A retracted object is found, and its state says so; no older version takes the place of the newest one.
	r := versions[2]
	r.State, r.Reason = wire.StateRetracted, "overexposed"
	l.part(camera, r)
	l.flush()
	l.ready(c)
	if r := l.find(c, "n/latest.jpg"); r.ID != versions[2].ID || r.State != wire.StateRetracted {
		t.Errorf("retracted: %+v", r)
	}
}

// Folders are known without a look at what they hold, where days say so.
func TestChildren(t *testing.T) {
	l := newLab(t)
	for i := range 6 {
		at := noon.AddDate(0, 0, -10*i)
		var records []wire.Record
		for j := range 3 {
			records = append(records, object(at.Add(time.Duration(j)*time.Second), at.Format("2006/01/02/")+fmt.Sprintf("%d.jpg", j)))
		}
		l.part(camera, records...)
	}
	l.flush()
	c := l.catalog(nil)
	l.ready(c)
	l.Store.Gets()
	names := func(dir string) ([]string, []string) {
		t.Helper()
		listing, err := c.Children(t.Context(), camera, dir)
		if err != nil {
			t.Fatal(err)
		}
		var dirs []string
		for _, d := range listing.Dirs {
			dirs = append(dirs, fmt.Sprintf("%s %d %s", d.Name, d.Entries, d.LastDay))
		}
		if listing.Tag == "" || listing.More {
			t.Errorf("%q: tag %q, more %t", dir, listing.Tag, listing.More)
		}
		return dirs, listing.Paths
	}
	for dir, want := range map[string][]string{
		"":        {"2026 18 2026-11-21"},
		"2026":    {"10 9 2026-10-22", "11 9 2026-11-21"}, // 2, 12 and 22 October; 1, 11, 21 November
		"2026/11": {"01 3 2026-11-01", "11 3 2026-11-11", "21 3 2026-11-21"},
	} {
		dirs, files := names(dir)
		l.same("in "+dir, want, dirs)
		l.same("objects in "+dir, 0, len(files))
	}
	if asked := l.Store.Gets(); len(asked) != 0 {
		t.Errorf("for folders alone %q are read", asked)
	}
	_, files := names("2026/11/11")
	l.same("objects", []string{"2026/11/11/0.jpg", "2026/11/11/1.jpg", "2026/11/11/2.jpg"}, files)
	for _, none := range []string{"2025", "2026/1", "2026/11/11/0.jpg", "x", "2026/11/1"} {
		if dirs, files := names(none); len(dirs)+len(files) > 0 {
			t.Errorf("%q holds %q, %q", none, dirs, files)
		}
	}
	before, err := c.Children(t.Context(), camera, "2026/11/21")
	if err != nil {
		t.Fatal(err)
	}
	l.Announce(camera, object(noon.Add(time.Hour), "2026/11/21/night/new.jpg"), object(noon.Add(time.Hour), "2026/11/21/9.jpg"))
	l.ready(c)
	dirs, files := names("2026/11/21")
	l.same("fresh folders", []string{"night 1 2026-11-21"}, dirs)
	l.same("fresh objects", []string{"2026/11/21/0.jpg", "2026/11/21/1.jpg", "2026/11/21/2.jpg", "2026/11/21/9.jpg"}, files)
	after, err := c.Children(t.Context(), camera, "2026/11/21")
	if err != nil || after.Tag == before.Tag || !after.Changed.Equal(noon.Add(time.Hour)) {
		t.Errorf("tag %s, changed at %s, %v", after.Tag, after.Changed, err)
	}
	days, err := c.Days(t.Context(), camera)
	if err != nil || len(days) != 6 || days[5].Entries != 5 || !manifest.MayHold(days[5], "2026/11/21/night") {
		t.Errorf("%d days, the last %+v, %v", len(days), days[len(days)-1], err)
	}
	instruments, err := c.Instruments(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.same("instruments", []string{camera}, instruments)
}

// A folder with too many is given page by page; days behind a page are not read.
func TestPages(t *testing.T) {
	l := newLab(t)
	var want []string
	for i := range 8 {
		at := noon.AddDate(0, 0, i-8)
		var records []wire.Record
		for j := range 5 {
			path := fmt.Sprintf("flat/%d-%d.jpg", i, j)
			want = append(want, path)
			records = append(records, object(at.Add(time.Duration(j)*time.Second), path))
		}
		l.part(camera, records...)
	}
	l.flush()
	c := l.catalog(nil)
	l.ready(c)
	var got []string
	l.Store.Gets()
	for after, pages := "", 0; ; pages++ {
		listing, err := c.ChildrenAfter(t.Context(), camera, "flat", after, 7)
		if err != nil || len(listing.Paths) > 7 || pages > 8 {
			t.Fatalf("%d in page %d, %v", len(listing.Paths), pages, err)
		}
		if pages == 0 && len(l.Store.Gets()) > 3 {
			t.Error("for a first page too many days are read")
		}
		got = append(got, listing.Paths...)
		if !listing.More {
			break
		}
		after = listing.Paths[len(listing.Paths)-1]
	}
	l.same("all pages", want, got)
	whole, err := c.Children(t.Context(), camera, "flat")
	if err != nil || whole.More {
		t.Fatal(err)
	}
	l.same("at once", want, whole.Paths)
}

// Late data is placed by observation time where it belongs, and by receipt where it came.
func TestBetween(t *testing.T) {
	l := newLab(t)
	hour := func(h int) time.Time { return noon.Add(time.Duration(h) * time.Hour) }
	var late []wire.Record
	for i := range 10 { // observed over the days before
		r := object(hour(i).Add(time.Minute), fmt.Sprintf("late-%d", i))
		late = append(late, observed(r, hour(-24*i), hour(-24*i).Add(time.Minute)))
	}
	l.part(camera, late...)
	for i := range 20 {
		at := hour(-8 * i)
		l.part(camera, observed(object(at.Add(time.Second), fmt.Sprintf("on-time-%02d", i)), at, at.Add(time.Minute)))
	}
	unknown := object(hour(-30), "unknown")
	retracted := observed(object(hour(-31), "retracted"), hour(-31), hour(-31))
	retracted.State = wire.StateRetracted
	l.part(camera, unknown, retracted)
	l.root(camera)
	l.flush()
	c := l.catalog(nil)
	fresh := observed(object(hour(1), "fresh"), hour(-40), hour(-39))
	l.Announce(camera, fresh)
	l.ready(c)

	read := func(from, to time.Time, by By) []string {
		t.Helper()
		var all []string
		last := time.Time{}
		for r, err := range c.Between(t.Context(), camera, from, to, by) {
			if err != nil {
				t.Fatal(err)
			}
			at, _ := by.Span(&r)
			if at.Before(last) {
				t.Errorf("%s begins at %s, before the one before it", r.Path, at)
			}
			last = at
			all = append(all, r.Path)
		}
		return all
	}
	if all := read(time.Time{}, time.Time{}, ByObserved); len(all) != 32 {
		t.Errorf("%d of 32: %q", len(all), all)
	}
	if all := read(time.Time{}, time.Time{}, ByReceived); len(all) != 32 {
		t.Errorf("%d of 32: %q", len(all), all)
	}
	l.same("a night by observation", []string{"on-time-05", "fresh", "on-time-04", "unknown", "on-time-03", "late-1"}, read(hour(-47), hour(-23), ByObserved))
	l.same("half a minute into one", []string{"on-time-03", "late-1"}, read(hour(-24).Add(30*time.Second), hour(-23), ByObserved))
	l.same("by receipt", []string{"late-0", "fresh", "late-1"}, read(hour(0).Add(30*time.Second), hour(1).Add(2*time.Minute), ByReceived))
	l.same("the end is no part of it", 0, len(read(hour(100), hour(200), ByObserved)))
	l.same("an empty time", 0, len(read(hour(0), hour(0), ByReceived)))

	other := l.ready2()
	l.Store.Gets()
	for range other.Between(t.Context(), camera, hour(-160), time.Time{}, ByReceived) {
		break
	}
	if asked := l.Store.Gets(); len(asked) > 4 { // the root, and three parts of a day
		t.Errorf("for the first object %q are read", asked)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range c.Between(ctx, mag, time.Time{}, time.Time{}, ByReceived) {
		t.Errorf("of an instrument without an archive: %v", err)
	}
}
