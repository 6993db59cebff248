// SPDX-License-Identifier: Apache-2.0

//go:build linux

package retention

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/substorm/substorm/internal/diskbudget"
	"github.com/substorm/substorm/internal/highwater"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// disk is a data folder with a budget of 100 MiB.
type disk struct {
	*diskbudget.Budget
	t      *testing.T
	filler string
}

func newDisk(t *testing.T) *disk {
	t.Helper()
	_, dir := testenv.DiskOf(t, 256<<20) // no other process writes there
	d := &disk{t: t, filler: filepath.Join(dir, "filler")}
	var err error
	if d.Budget, err = diskbudget.New(dir, 100<<20, func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); d.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return d
}

// fill has so many MiB in the folder, and waits until the budget knows.
func (d *disk) fill(mebibytes int64) {
	d.t.Helper()
	if err := os.WriteFile(d.filler, make([]byte, mebibytes<<20), 0o600); err != nil {
		d.t.Fatal(err)
	}
	for range testenv.Attempts() {
		if is := d.State(); is.Measured && is.Used>>20 == mebibytes {
			return
		}
	}
	d.t.Fatalf("%d MiB are not seen: %+v", mebibytes, d.State())
}

// Data that can be made again expires if the disk budget is nearly used up: closed days, under no legal hold, and only of an Instrument that says
// so. If there is space again before anything was listed as purged, it stays.
func TestExpireForSpace(t *testing.T) {
	l := newLab(t)
	l.fill()
	d := newDisk(t)
	r := l.collector()
	r.cfg.Budget = d.Budget
	whole := map[wire.State]int{wire.StateCurrent: 7}
	look := func(at time.Time) {
		t.Helper()
		if err := r.findForSpace(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
	early := noon.AddDate(0, 0, 1)
	l.keep = &wire.RetentionEntry{MaxAgeMillis: (480 * time.Hour).Milliseconds()}
	d.fill(95)
	look(early)
	l.want("nothing can be made again", l.waiting(r), 0)
	l.want("and that is known", d.State().Removable, 0)

	l.keep = &wire.RetentionEntry{WhenDiskFull: true}
	l.closedTo = wire.DayOf(noon.AddDate(0, 0, -1))
	look(early)
	l.want("removals of a day that is not closed", l.waiting(r), 0)
	l.closedTo = day
	l.hold = true
	look(early)
	l.want("removals under legal hold", l.waiting(r), 0)
	if is := d.State(); is.Reproducible <= 0 || is.Removable != 0 {
		t.Errorf("under legal hold %d bytes can be made again, of which %d may go", is.Reproducible, is.Removable)
	}
	l.hold = false

	look(early)
	l.want("removals", l.waiting(r), 1)
	d.fill(50)
	if err := r.pass(t.Context(), early); err != nil {
		t.Fatal(err)
	}
	l.want("there is space again", l.states(camera), whole)
	l.want("removals", l.waiting(r), 0)

	d.fill(95)
	look(early)
	l.keep = &wire.RetentionEntry{} // the Instrument says no more that its objects can be made again
	if err := r.pass(t.Context(), early); err != nil {
		t.Fatal(err)
	}
	l.want("it cannot be made again", l.states(camera), whole)

	l.keep = &wire.RetentionEntry{WhenDiskFull: true}
	look(early)
	for i := range 3 {
		if err := r.pass(t.Context(), early.Add(time.Duration(i)*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	l.want("removals", l.waiting(r), 0)
	l.gone()
	l.want("objects removed", testutil.ToFloat64(l.metrics.objects.WithLabelValues(bySpace)), 6)
	l.want("objects expired otherwise", testutil.ToFloat64(l.metrics.objects.WithLabelValues(byExpiry)), 0)
	for rec, err := range manifest.Records(t.Context(), l.Store, site, camera, day) {
		if err != nil {
			t.Fatal(err)
		}
		if rec.State == wire.StatePurged && (!strings.HasPrefix(rec.Reason, "expired: it can be made again, and 95 MiB of 100 MiB") || rec.ChangedBy != wire.ByRetention) {
			t.Errorf("%+v", rec)
		}
	}
	l.index()
	look(early)
	l.want("nothing is left", l.waiting(r), 0)
	l.want("and messages may go", d.State().Messages, true)
}

// A day whose objects a partner all has expires when the disk budget is nearly used up; a day with bytes that are nowhere else does
// not.
func TestExpireMirroredForSpace(t *testing.T) {
	digest := func(m *wire.MirrorEntry) { m.Verify = wire.MirrorVerifyDigest }
	prunes := func(m *wire.MirrorEntry) { m.Prune = wire.MirrorPruneWhenExpired }
	part := func(m *wire.MirrorEntry) { m.Selection.ObservedTo = noon.Add(time.Minute) }
	seldom := func(m *wire.MirrorEntry) {
		m.Continuous = &wire.MirrorContinuous{IntervalMillis: (comparedWithin + time.Hour).Milliseconds()}
	}
	l := newLab(t)
	l.fill()
	l.keep = &wire.RetentionEntry{WhenMirrored: true}
	d := newDisk(t)
	d.fill(95)
	early := noon.AddDate(0, 0, 1)
	looks := func() {
		t.Helper()
		r := l.collector()
		r.cfg.Budget = d.Budget
		if err := r.findForSpace(t.Context(), early); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if err := r.pass(t.Context(), early.Add(time.Duration(i)*time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		partners map[string]*wire.MirrorEntry
		// has is how many objects of the day the partner eiscat has, of seven.
		has int
		// compared is how long ago it compared them; zero: just now. Negative: that is not known.
		compared time.Duration
		kept     string
	}{
		"it lacks one":                {map[string]*wire.MirrorEntry{"eiscat": pushed(time.Hour, digest)}, 6, 0, keptLacking},
		"it does not compare digests": {map[string]*wire.MirrorEntry{"eiscat": pushed(time.Hour)}, 7, 0, keptLacking},
		"it prunes what expires here": {map[string]*wire.MirrorEntry{"eiscat": pushed(time.Hour, digest, prunes)}, 7, 0, keptLacking},
		"it is given a part":          {map[string]*wire.MirrorEntry{"eiscat": pushed(time.Hour, digest, part)}, 3, 0, keptLacking},
		"another one lacks all":       {map[string]*wire.MirrorEntry{"eiscat": pushed(time.Hour, digest), "madrigal": pushed(time.Hour)}, 7, 0, keptLacking},
		"it did not compare lately":   {map[string]*wire.MirrorEntry{"eiscat": pushed(time.Hour, digest)}, 7, comparedWithin + time.Hour, keptUncompared},
		"when is not known":           {map[string]*wire.MirrorEntry{"eiscat": pushed(time.Hour, digest)}, 7, -1, keptUncompared},
		"it compares too seldom":      {map[string]*wire.MirrorEntry{"eiscat": pushed(time.Hour, digest, seldom)}, 7, 0, keptUncompared},
		"it is deleted":               {map[string]*wire.MirrorEntry{}, 7, 0, keptLacking},
		"nobody knows the partners":   {nil, 7, 0, keptLacking},
	} {
		l.partners = c.partners
		l.has("eiscat", c.has)
		l.compared("eiscat", early, c.compared)
		was := testutil.ToFloat64(l.metrics.kept.WithLabelValues(c.kept))
		looks()
		l.want(name+": counted", testutil.ToFloat64(l.metrics.kept.WithLabelValues(c.kept)) > was, true)
		l.want(name+": it may go", d.State().Removable > 0, false)
		l.want(name, l.states(camera), map[wire.State]int{wire.StateCurrent: 7})
	}
	l.partners = map[string]*wire.MirrorEntry{"eiscat": pushed(time.Hour, digest)}
	l.has("eiscat", 7)
	l.compared("eiscat", early, 0)
	looks()
	l.want("it may go", d.State().Removable > 0, true)
	l.gone()
}

// A day that was let go because partners had all of it stays if they do not any more.
func TestMirroredNoMore(t *testing.T) {
	l := newLab(t)
	l.fill()
	l.keep = &wire.RetentionEntry{WhenMirrored: true}
	l.partners = map[string]*wire.MirrorEntry{"eiscat": pushed(time.Hour, func(m *wire.MirrorEntry) { m.Verify = wire.MirrorVerifyDigest })}
	l.has("eiscat", 7)
	d := newDisk(t)
	d.fill(95)
	r := l.collector()
	r.cfg.Budget = d.Budget
	early := noon.AddDate(0, 0, 1)
	l.compared("eiscat", early, 0)
	if err := r.findForSpace(t.Context(), early); err != nil {
		t.Fatal(err)
	}
	l.want("removals", l.waiting(r), 1)
	l.has("eiscat", 5)
	if err := r.pass(t.Context(), early); err != nil {
		t.Fatal(err)
	}
	l.want("it stays", l.states(camera), map[wire.State]int{wire.StateCurrent: 7})
	l.want("removals", l.waiting(r), 0)
}

// The oldest days go, of whichever instrument, and no more than needed.
func TestOldestFirst(t *testing.T) {
	days := func() []spaceDay {
		return []spaceDay{{"b", "2026-11-02", 10}, {"a", "2026-11-03", 10}, {"a", "2026-11-01", 10}, {"a", "2026-11-02", 10}}
	}
	for remove, want := range map[int64][]spaceDay{
		0:   {},
		1:   {{"a", "2026-11-01", 10}},
		10:  {{"a", "2026-11-01", 10}},
		11:  {{"a", "2026-11-01", 10}, {"a", "2026-11-02", 10}},
		30:  {{"a", "2026-11-01", 10}, {"a", "2026-11-02", 10}, {"b", "2026-11-02", 10}},
		900: {{"a", "2026-11-01", 10}, {"a", "2026-11-02", 10}, {"b", "2026-11-02", 10}, {"a", "2026-11-03", 10}},
	} {
		if diff := cmp.Diff(want, oldestFirst(days(), remove), cmp.AllowUnexported(spaceDay{})); diff != "" {
			t.Errorf("for %d bytes (-want +got):\n%s", remove, diff)
		}
	}
}

// A clock that is ahead at one start, which the NATS server in the same process shares, expires nothing.
func TestClockOfOneProcess(t *testing.T) {
	l := newLab(t)
	l.fill()
	l.keep = &wire.RetentionEntry{MaxAgeMillis: (time.Since(noon) + 30*24*time.Hour).Milliseconds()}
	l.closedTo = wire.DayOf(time.Now().AddDate(1, 0, 0))
	believe(t, time.Now())
	r := l.collector() // its clocks agree
	ahead := time.Now().UTC().AddDate(1, 0, 0)
	for range 3 {
		l.pass(r, ahead)
	}
	l.want("while the clock is ahead", l.states(camera), map[wire.State]int{wire.StateCurrent: 7})
	l.want("removals", l.waiting(r), 0)

	believe(t, ahead) // that much time has passed
	for i := range 3 {
		l.pass(r, ahead.Add(time.Duration(i)*time.Hour))
	}
	l.gone()
}

// Nor does such a clock end the time for which a day waits for a partner.
func TestClockOfOneProcessWhileAPartnerIsOwed(t *testing.T) {
	l := newLab(t)
	l.fill()
	l.keep = &wire.RetentionEntry{MaxAgeMillis: time.Hour.Milliseconds(), HoldMillis: (30 * 24 * time.Hour).Milliseconds()}
	l.partners = map[string]*wire.MirrorEntry{"eiscat": pushed(30 * 24 * time.Hour)}
	l.has("eiscat", 0)
	l.closedTo = wire.DayOf(time.Now().AddDate(1, 0, 0))
	start, ahead := time.Now().UTC(), time.Now().UTC().AddDate(1, 0, 0)
	believe(t, start)
	r := l.collector()
	for _, at := range []time.Time{start, ahead, ahead.Add(time.Hour), ahead.Add(2 * time.Hour)} {
		l.pass(r, at)
	}
	l.want("while the clock is ahead", l.states(camera), map[wire.State]int{wire.StateCurrent: 7})
	l.want("removals", l.waiting(r), 1)

	believe(t, ahead) // that much time has passed
	for i := range 3 {
		l.pass(r, ahead.Add(time.Duration(3+i)*time.Hour))
	}
	l.gone()
}

// believe has this process go by the mark of a data folder that is new at a time.
func believe(t *testing.T, at time.Time) {
	t.Helper()
	mark, err := highwater.Open(t.TempDir(), at)
	if err != nil {
		t.Fatal(err)
	}
	highwater.Embed(mark)
	t.Cleanup(func() { highwater.Embed(nil) })
}
