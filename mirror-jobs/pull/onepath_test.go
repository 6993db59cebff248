// SPDX-License-Identifier: Apache-2.0

package pull_test

import (
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/folder"
)

// otherID gives an object an ID of its own, though it has the path of another one.
func otherID(r *wire.Record) {
	r.Key = wire.NamedKey(archivetest.Site, archivetest.Camera, r.Path, 2)
}

// Two current objects of one path, on two days, are both mirrored, and stay so.
func TestOnePathOnTwoDays(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	large := strings.Repeat("0123456789abcdef", 9<<20/16)
	for _, path := range []string{"same.txt", "large.fits"} {
		one, two := "one", "two"
		if path == "large.fits" {
			one, two = large+"one", large+"two"
		}
		l.Put(archivetest.Camera, path, one, at(storm))
		l.Wait(l.Put(archivetest.Camera, path, two, at(storm.AddDate(0, 0, 1)), otherID))
	}
	for _, force := range []bool{false, true, false} {
		l.force = force
		l.pull()
		bodies := slices.Collect(maps.Values(l.files()))
		if len(bodies) != 4 {
			t.Fatalf("with force %t there are %d files of 4 objects", force, len(bodies))
		}
		for _, body := range []string{"one", "two", large + "one", large + "two"} {
			if !slices.Contains(bodies, body) {
				t.Errorf("with force %t an object is not there that ends with %q", force, body[len(body)-3:])
			}
		}
	}
}

// An origin that was installed again under its code gives the ID and the path of an object to other bytes: they come, and the file of the
// first object stays under another name.
func TestReinstalled(t *testing.T) {
	t.Parallel()
	l, again := newLab(t), newLab(t)
	l.Put(archivetest.Camera, "1.jpg", "one", at(storm))
	l.Put(archivetest.Camera, "3.jpg", "five", at(storm))
	l.Wait(l.Put(archivetest.Camera, "2.jpg", "two", at(storm)))
	l.pull()
	again.Put(archivetest.Camera, "3.jpg", "five", at(storm))
	again.Wait(again.Put(archivetest.Camera, "1.jpg", "other", at(storm.Add(time.Hour))))
	l.URL = again.URL
	want := map[string]string{"allsky-1/1.jpg": "other", "allsky-1/2.jpg": "two", "allsky-1/3.jpg": "five",
		"allsky-1/" + folder.AsidePath("1.jpg", sha256.Sum256([]byte("one"))): "one"}
	for range 2 {
		if err := l.from(t.Context(), l.URL); err != nil {
			t.Fatal(err)
		}
		l.want("both", want)
		l.force = true
	}
	if !strings.Contains(l.log.String(), "renaming files in the place of a pulled object") {
		t.Errorf("the log does not say so: %s", &l.log)
	}
}

// So do they where the other bytes have the same time of receipt, as those of a tree that is imported again.
func TestReinstalledWithTheSameTimes(t *testing.T) {
	t.Parallel()
	l, again := newLab(t), newLab(t)
	l.Put(archivetest.Camera, "1.jpg", "one", at(storm))
	l.Wait(l.Put(archivetest.Camera, "2.jpg", "two", at(storm)))
	l.pull()
	again.Put(archivetest.Camera, "2.jpg", "two", at(storm))
	again.Wait(again.Put(archivetest.Camera, "1.jpg", "other", at(storm)))
	l.URL = again.URL
	l.pull()
	l.want("both", map[string]string{"allsky-1/1.jpg": "other", "allsky-1/2.jpg": "two",
		"allsky-1/" + folder.AsidePath("1.jpg", sha256.Sum256([]byte("one"))): "one"})
}

// An object that is retracted between its list and its bundle is not missing: the run succeeds, and the next one looks again.
func TestChangedBeforeItsBundle(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	one := l.Put(archivetest.Camera, "1.jpg", "one", at(storm))
	l.Wait(l.Put(archivetest.Camera, "2.jpg", "two", at(storm)))
	var once sync.Once
	address := lying(t, l.URL, func(path string, body []byte) []byte {
		if path == mirrorindex.ListsPath {
			once.Do(func() { l.retract(one) })
		}
		return body
	})
	if err := l.from(t.Context(), address); err != nil {
		t.Errorf("an object was retracted meanwhile: %v\n%s", err, &l.log)
	}
	l.want("the other one", map[string]string{"allsky-1/2.jpg": "two"})
	if l.last.Failed != 0 || l.last.Objects != 1 || l.last.OwedObjects != 1 {
		t.Errorf("%+v", l.last)
	}
	l.pull()
	if asked := l.pull(); len(asked) != 1 {
		t.Errorf("nothing is left: %q", asked)
	}
}
