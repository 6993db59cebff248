// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/naming"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/wire"
)

// publish stores and announces an object as a gateway does that knows its
// instrument's naming.
func (l *lab) publish(instrument string, at time.Time, body string) wire.Notice {
	l.t.Helper()
	e, _ := l.setting(instrument)
	template, err := naming.Parse(e.Naming)
	if err != nil {
		l.t.Fatal(err)
	}
	n := l.putObject(instrument, object{at, body})
	n.Path = objectpath.Path(template, instrument, e.Station, n.Record, 0)
	l.announce(n)
	return n
}

// paths returns those under which an instrument's objects are published.
func (l *lab) paths(instrument string) []string {
	var all []string
	for _, r := range l.listed(instrument) {
		if r.State == wire.StateCurrent {
			all = append(all, r.Path)
		}
	}
	slices.Sort(all)
	return all
}

// Objects of a day that have the same path get distinct numbers, from whichever incarnation of the
// writer; those of another day, and duplicates, do not count.
func TestPathsThatClash(t *testing.T) {
	l := start(t).site(t, "thule")
	l.settings[camera] = wire.InstrumentEntry{Station: "rank", Naming: "{year}/{month}/{day}/{station}-{digest:8}.fits.gz", RepeatWindowMillis: 1000}
	noon := time.Now().UTC().Truncate(24 * time.Hour).Add(12 * time.Hour)
	yesterday := noon.Add(-24 * time.Hour)
	first := l.publish(camera, noon, "dark")
	base := first.Path
	if want := noon.Format("2006/01/02/") + "rank-" + first.Digest.String()[:8] + ".fits.gz"; base != want {
		t.Fatalf("path %q, want %q", base, want)
	}
	l.publish(camera, noon.Add(500*time.Millisecond), "dark") // a duplicate
	l.publish(camera, noon.Add(time.Minute), "dark")
	of := l.publish(camera, yesterday, "dark")
	other := of.Path
	stop := l.run(l.config("a"))
	l.await("four objects are listed", func() bool { return len(l.listed(camera)) == 4 })
	want(t, "paths", sorted(base, objectpath.Told(base, 2), other), l.paths(camera))

	stop()
	cfg := l.config("b")
	l.run(cfg)
	l.announce(first) // the notice once more
	l.publish(camera, noon.Add(2*time.Minute), "dark")
	l.publish(camera, noon.Add(3*time.Minute), "another")
	l.await("six objects are listed", func() bool { return len(l.listed(camera)) == 6 })
	l.publish(camera, noon.Add(4*time.Minute), "dark")
	l.await("seven objects are listed", func() bool { return len(l.listed(camera)) == 7 })
	correction := l.notice(camera, object{noon.Add(5 * time.Minute), "correction"})
	correction.Path, correction.Supersedes, correction.Name = other, of.ID, "x"
	correction.ReceivedAt = yesterday.Add(5 * time.Minute)
	l.announce(correction)
	l.await("the correction is listed", func() bool { return len(l.listed(camera)) == 8 })
	paths := l.paths(camera)
	if n := len(slices.DeleteFunc(slices.Clone(paths), func(path string) bool { return path != other })); n != 1 {
		t.Errorf("%d current versions are published under %q, want 1", n, other)
	}
	if old := l.keys(camera, wire.StateSuperseded); len(old) != 1 || old[0] != of.Key {
		t.Errorf("superseded are %q, want %q", old, of.Key)
	}
	for _, number := range []int{1, 2, 3, 4} {
		if !slices.Contains(paths, objectpath.Told(base, number)) {
			t.Errorf("%q is missing in %q", objectpath.Told(base, number), paths)
		}
	}
	if len(slices.Compact(paths)) != 6 {
		t.Errorf("%q are not six paths", paths)
	}
	if n := gauge(t, cfg, "substorm_manifest_paths_total"); n != 4 {
		t.Errorf("%v paths were made, want 4", n)
	}
}

// A sequence counts the objects of each day, across incarnations of the writer.
func TestPathsWithSequence(t *testing.T) {
	l := start(t).site(t, "thule")
	l.settings[camera] = wire.InstrumentEntry{Naming: "{year}{doy}/{sequence}.fits"}
	noon := time.Now().UTC().Truncate(24 * time.Hour).Add(12 * time.Hour)
	var expected []string
	send := func(at time.Time, numbers ...int) {
		for _, n := range numbers {
			l.publish(camera, at.Add(time.Duration(n)*time.Second), fmt.Sprint("frame ", at, n))
			expected = append(expected, fmt.Sprintf("%d%03d/%d.fits", at.Year(), at.YearDay(), n))
		}
	}
	send(noon, 1, 2, 3)
	send(noon.Add(-24*time.Hour), 1)
	stop := l.run(l.config("a"))
	l.await("four are listed", func() bool { return len(l.listed(camera)) == 4 })
	stop()
	l.run(l.config("b"))
	send(noon, 4, 5)
	send(noon.Add(-24*time.Hour), 2)
	l.await("seven are listed", func() bool { return len(l.listed(camera)) == 7 })
	want(t, "paths", sorted(expected...), l.paths(camera))
}
