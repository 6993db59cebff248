// SPDX-License-Identifier: Apache-2.0

package pull_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/pull"
)

// A day whose list was removed is compared again once anything of its Instrument changes, and with force: what is missing comes, and
// nothing else.
func TestLostList(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Put(archivetest.Camera, "1.jpg", "one", at(storm))
	l.Put(archivetest.Camera, "2.jpg", "two", at(storm))
	l.Wait(l.Put(archivetest.Camera, "3.jpg", "three", at(storm.AddDate(0, 2, 0))))
	l.pull()
	want := map[string]string{"allsky-1/1.jpg": "one", "allsky-1/2.jpg": "two", "allsky-1/3.jpg": "three"}
	lose := func() {
		t.Helper()
		err := errors.Join(os.Remove(filepath.Join(l.dir, ".substorm/allsky-1/2015-03-17.jsonl.zst")), os.Remove(filepath.Join(l.dir, "allsky-1/1.jpg")))
		if err != nil {
			t.Fatal(err)
		}
	}
	lose()
	l.Wait(l.Put(archivetest.Camera, "4.jpg", "four", at(storm.AddDate(0, 3, 0))))
	want["allsky-1/4.jpg"] = "four"
	l.pull()
	l.want("once anything changed", want)
	if l.last.Objects != 2 || !strings.Contains(l.log.String(), "day=2015-03-17") {
		t.Errorf("%+v\n%s", l.last, &l.log)
	}
	if asked := l.pull(); len(asked) != 1 {
		t.Errorf("nothing changed: %q", asked)
	}
	lose()
	l.force = true
	l.pull()
	l.want("with force", want)
	if l.last.Objects != 1 {
		t.Errorf("%+v", l.last)
	}
}

// The lists of days, or what is known of them, are lost for an instrument that is not selected any more: the files are found again, and are
// removed when their objects are retracted.
func TestLostListWhereNotSelected(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"2015-03-17.jsonl.zst", "days.json"} {
		t.Run(lost, func(t *testing.T) {
			l := newPair(t)
			l.Put(second, "2.jpg", "two", at(storm))
			one := l.Put(archivetest.Camera, "1.jpg", "one", at(storm))
			l.Wait(one)
			l.pull()
			l.instruments = []string{second}
			l.pull()
			if err := os.Remove(filepath.Join(l.dir, ".substorm/allsky-1", lost)); err != nil {
				t.Fatal(err)
			}
			l.Wait(l.Put(archivetest.Camera, "3.jpg", "three", at(storm.AddDate(0, 2, 0))))
			l.pull()
			l.retract(one)
			l.pull()
			l.want("after the retraction", map[string]string{"allsky-2/2.jpg": "two"})
		})
	}
}

// A run with force names a lost copy of an object that is not selected any more, and so does the next one: nothing fetches it.
func TestLostCopyWhereNotSelected(t *testing.T) {
	t.Parallel()
	l := newPair(t)
	l.Put(second, "2.jpg", "two", at(storm))
	l.Wait(l.Put(archivetest.Camera, "1.jpg", "one", at(storm)))
	l.pull()
	l.instruments, l.force = []string{second}, true
	if err := os.Remove(filepath.Join(l.dir, "allsky-1/1.jpg")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.from(t.Context(), l.URL); !errors.Is(err, pull.ErrLost) || !strings.Contains(err.Error(), "allsky-1/1.jpg") {
			t.Errorf("a lost copy: %v", err)
		}
	}
	l.instruments, l.force = nil, false
	l.pull()
	l.want("selected again", map[string]string{"allsky-1/1.jpg": "one", "allsky-2/2.jpg": "two"})
}

// A copy that is lost, of an object that expired at the other side, fails each run that compares, until one accepts the loss; what the other
// side still has comes again.
func TestLostForGood(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Prune = plan.PruneNever
	var expired []wire.Record
	for _, name := range []string{"1.jpg", "2.jpg"} {
		expired = append(expired, l.Put(archivetest.Camera, name, name, at(storm)))
	}
	l.Wait(l.Put(archivetest.Camera, "3.jpg", "3.jpg", at(storm)))
	l.pull()
	for _, r := range expired {
		r.Expire("expired: kept for 48h0m0s", storm.AddDate(0, 1, 0))
		l.Announce(archivetest.Camera, r)
	}
	l.Until("two have expired", func() bool { return strings.Count(l.listOf("2015-03-17"), "State:Expired") == 2 })
	l.pull()
	file := func(name string) string { return filepath.Join(l.dir, archivetest.Camera, name) }
	err := errors.Join(os.Remove(file("1.jpg")), os.WriteFile(file("2.jpg"), []byte("rotten"), 0o600), os.Remove(file("3.jpg")))
	if err != nil {
		t.Fatal(err)
	}
	l.force = true
	for range 2 {
		l.log.Reset()
		err := l.from(t.Context(), l.URL)
		if log := l.log.String(); !errors.Is(err, pull.ErrLost) || !strings.Contains(err.Error(), ": 2, as allsky-1/") || !strings.Contains(log, "path=1.jpg") && !strings.Contains(log, "path=2.jpg") {
			t.Errorf("%v\n%s", err, log)
		}
	}
	l.want("what the other side has", map[string]string{"allsky-1/2.jpg": "rotten", "allsky-1/3.jpg": "3.jpg"})
	l.acceptLoss = true
	l.pull()
	l.acceptLoss = false
	l.pull()
}
