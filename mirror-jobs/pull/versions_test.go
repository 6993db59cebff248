// SPDX-License-Identifier: Apache-2.0

package pull_test

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/folder"
)

// putVersion puts a version of a name of the camera, which replaces another object; empty: none.
func (l *lab) putVersion(path, body string, version int, received time.Time, supersedes string) wire.Record {
	l.Helper()
	return l.Put(archivetest.Camera, path, body, at(received), func(r *wire.Record) {
		r.Version, r.Supersedes, r.Key = version, supersedes, wire.NamedKey(archivetest.Site, archivetest.Camera, path, version)
	})
}

func asideOf(path, body string) string {
	return archivetest.Camera + "/" + folder.AsidePath(path, sha256.Sum256([]byte(body)))
}

// An origin that was restored from an older backup gives the number of a version to other bytes: the file of the version that it lost stays.
func TestVersionAfterTheBackup(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("0123456789abcdef", 9<<20/16)
	for name, received := range map[string]time.Time{"the same day": storm.Add(time.Hour), "another day": storm.AddDate(0, 0, 1)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, restored := newLab(t), newLab(t)
			paths := map[string]string{"k1.txt": "lost", "large.fits": large + "lost"}
			want := map[string]string{"allsky-1/other.txt": "other"}
			for path, body := range paths {
				l.putVersion(path, body, 3, storm, "")
				restored.putVersion(path, body+" and other bytes", 3, received, "")
				want["allsky-1/"+path], want[asideOf(path, body)] = body+" and other bytes", body
			}
			for _, at := range []*lab{l, restored} {
				at.Wait(at.putVersion("other.txt", "other", 1, storm, ""))
			}
			l.pull()
			l.URL = restored.URL
			for _, force := range []bool{false, true, false} {
				l.force = force
				l.pull()
				got := l.files()
				for path, body := range want {
					if got[path] != body {
						t.Errorf("with force %t %s has %d bytes, want %d", force, path, len(got[path]), len(body))
					}
				}
				if len(got) != len(want) {
					t.Errorf("with force %t there are %d files, want %d", force, len(got), len(want))
				}
			}
		})
	}
}

// The file of a version takes the place of the one before, which the other side lists as superseded, whether or not a run saw that change.
func TestVersionReplaced(t *testing.T) {
	t.Parallel()
	for _, forgets := range []bool{false, true} {
		t.Run(fmt.Sprintf("forgets %t", forgets), func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			large := strings.Repeat("0123456789abcdef", 9<<20/16)
			one, two := l.putVersion("k1.txt", "one", 1, storm, ""), l.putVersion("large.fits", large+"one", 1, storm, "")
			l.Wait(one)
			l.Wait(two)
			l.pull()
			l.Wait(l.putVersion("k1.txt", "two", 2, storm.Add(time.Hour), one.ID))
			l.Wait(l.putVersion("large.fits", large+"two", 2, storm.Add(time.Hour), two.ID))
			if forgets {
				if err := os.Remove(filepath.Join(l.dir, ".substorm/allsky-1/2015-03-17.jsonl.zst")); err != nil {
					t.Fatal(err)
				}
			}
			l.pull()
			got := l.files()
			if len(got) != 2 || got["allsky-1/k1.txt"] != "two" || got["allsky-1/large.fits"] != large+"two" {
				t.Errorf("there are %d files: %q, %s", len(got), slices.Collect(maps.Keys(got)), &l.log)
			}
		})
	}
}

// An origin lists the version before as current for a while: its file is set aside, and goes once it is listed as superseded.
func TestVersionReplacedLater(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	one := l.putVersion("k1.txt", "one", 1, storm, "")
	l.Wait(one)
	l.pull()
	l.Wait(l.putVersion("k1.txt", "two", 2, storm.Add(time.Hour), ""))
	l.pull()
	l.want("both are current", map[string]string{"allsky-1/k1.txt": "two", asideOf("k1.txt", "one"): "one"})
	l.Wait(l.putVersion("k1.txt", "three", 3, storm.Add(2*time.Hour), one.ID))
	l.pull()
	l.want("the first one is superseded", map[string]string{"allsky-1/k1.txt": "three", asideOf("k1.txt", "two"): "two"})
}

// A newer version was retracted before its file came, so that the file is still the previous version's: it is removed with the previous
// version.
func TestVersionRetractedBeforeItCame(t *testing.T) {
	t.Parallel()
	for name, received := range map[string]time.Time{"the same day": storm.Add(time.Hour), "another day": storm.AddDate(0, 0, 1)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			one, other := l.putVersion("k1.txt", "one", 1, storm, ""), l.putVersion("k2.txt", "two", 1, storm, "")
			l.Wait(one)
			l.Wait(other)
			l.pull()
			two := l.putVersion("k1.txt", "another", 2, received, one.ID)
			l.Wait(two)
			two.State, two.Reason = wire.StateRetracted, "a lamp"
			l.Announce(archivetest.Camera, two)
			l.Until("it is gone", func() bool { return strings.Contains(l.listOf(string(wire.DayOf(received))), "State:Retracted") })
			l.pull()
			l.want("the newer one was retracted", map[string]string{"allsky-1/k1.txt": "one", "allsky-1/k2.txt": "two"})
			one.State, one.Reason = wire.StatePurged, "a person"
			l.Announce(archivetest.Camera, one)
			l.Until("it is gone", func() bool { return strings.Contains(l.listOf("2015-03-17"), "State:Purged") })
			l.pull()
			l.want("both are gone", map[string]string{"allsky-1/k2.txt": "two"})
		})
	}
}
