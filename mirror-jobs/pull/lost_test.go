// SPDX-License-Identifier: Apache-2.0

package pull_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
)

// A day whose list was removed is compared anew once anything of its Instrument changes, and with force: what is missing comes, and
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
