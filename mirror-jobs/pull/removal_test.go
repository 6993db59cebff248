// SPDX-License-Identifier: Apache-2.0

package pull_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// retract retracts objects of the day of the storm.
func (l *lab) retract(all ...wire.Record) {
	l.Helper()
	for _, r := range all {
		r.State, r.Reason = wire.StateRetracted, "a lamp"
		l.Announce(archivetest.Camera, r)
	}
	l.Until("they are gone", func() bool { return strings.Count(l.listOf("2015-03-17"), "State:Retracted") >= len(all) })
}

// loseTimes gives files of the camera another time, as cp -r does.
func (l *lab) loseTimes(names ...string) {
	l.Helper()
	for _, name := range names {
		if err := os.Chtimes(filepath.Join(l.dir, archivetest.Camera, name), time.Time{}, time.Now()); err != nil {
			l.Fatal(err)
		}
	}
}

// The file of an object is removed also where its time was lost, and one that is not removed does not count.
func TestRemovedWithoutTimes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	one, two := l.Put(archivetest.Camera, "1.jpg", "one", at(storm)), l.Put(archivetest.Camera, "2.jpg", "two", at(storm))
	changed := l.Put(archivetest.Camera, "3.jpg", "three", at(storm))
	l.Wait(l.Put(archivetest.Camera, "4.jpg", "four", at(storm)))
	l.pull()
	l.loseTimes("1.jpg", "2.jpg", "4.jpg")
	if err := os.WriteFile(filepath.Join(l.dir, archivetest.Camera, "3.jpg"), []byte("THREE"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.retract(one, two, changed)
	l.pull()
	want := map[string]string{"allsky-1/3.jpg": "THREE", "allsky-1/4.jpg": "four"}
	l.want("two are retracted, and what was written here stays", want)
	if l.last.Removed != 2 {
		t.Errorf("%d removed", l.last.Removed)
	}
	// A file that comes back is found with force.
	if err := os.WriteFile(filepath.Join(l.dir, archivetest.Camera, "1.jpg"), []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.force = true
	l.pull()
	l.want("with force", want)
	if l.last.Removed != 1 {
		t.Errorf("%d removed with force", l.last.Removed)
	}
}

// An object that was sent again with the same bytes, after it was retracted, keeps its file.
func TestSentAnew(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	one := l.Put(archivetest.Camera, "1.jpg", "one", at(storm))
	l.Wait(one)
	l.pull()
	l.retract(one)
	l.Wait(l.Put(archivetest.Camera, "1.jpg", "one", at(storm.AddDate(0, 0, 1)), func(r *wire.Record) {
		r.Version, r.Key = 2, wire.NamedKey(archivetest.Site, archivetest.Camera, "1.jpg", 2)
	}))
	want := map[string]string{"allsky-1/1.jpg": "one"}
	l.pull()
	l.want("the newer one", want)
	if l.last.Objects != 1 || l.last.Removed != 0 {
		t.Errorf("%+v", l.last)
	}
	l.loseTimes("1.jpg")
	l.force = true
	for range 2 {
		l.pull()
		l.want("with force", want)
	}
}

// Removed objects count for the safety stop before they go: a run that is killed meanwhile has counted what it removed.
func TestRemovedCountsFirst(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	one := l.Put(archivetest.Camera, "1.jpg", "one", at(storm))
	l.Wait(l.Put(archivetest.Camera, "2.jpg", "two", at(storm)))
	l.pull()
	l.retract(one)
	removed := false
	l.said = func(line string) {
		if !strings.Contains(line, "an object is removed") {
			return
		}
		removed = true
		if state, err := os.ReadFile(filepath.Join(l.dir, ".substorm", "state.json")); err != nil || !strings.Contains(string(state), `"removed":`) {
			t.Errorf("the state is %s, %v, while objects are removed", state, err)
		}
	}
	l.SafetyStop = 50
	l.pull()
	l.want("one is retracted", map[string]string{"allsky-1/2.jpg": "two"})
	if !removed {
		t.Error("the log does not say what is removed")
	}
}

// An object that expires at the other side stays, unless the policy removes it. Its day and its line stay listed there.
func TestExpired(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	one := l.Put(archivetest.Camera, "1.jpg", "one", at(storm))
	l.Wait(l.Put(archivetest.Camera, "2.jpg", "two", at(storm)))
	l.Prune = plan.PruneNever
	l.pull()
	one.Expire("expired: kept for 48h0m0s", storm.AddDate(0, 1, 0))
	l.Announce(archivetest.Camera, one)
	l.Until("it has expired", func() bool { return strings.Contains(l.listOf("2015-03-17"), "State:Expired") })
	for range 2 {
		l.pull()
		l.want("with Never", map[string]string{"allsky-1/1.jpg": "one", "allsky-1/2.jpg": "two"})
		l.force = true
	}
	l.force, l.Prune = false, plan.PruneWhenExpired
	l.pull()
	l.want("with WhenExpired", map[string]string{"allsky-1/2.jpg": "two"})
}
