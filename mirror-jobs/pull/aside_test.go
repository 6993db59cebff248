// SPDX-License-Identifier: Apache-2.0

package pull_test

import (
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/mirror-jobs/folder"
)

// An object that was set aside and is retracted goes, and the other one of its path stays.
func TestSetAsideIsRemoved(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	one := l.Put(archivetest.Camera, "same.txt", "one", at(storm))
	l.Wait(one)
	l.pull()
	l.Wait(l.Put(archivetest.Camera, "same.txt", "two", at(storm.AddDate(0, 0, 1)), otherID))
	l.pull()
	aside := "allsky-1/" + folder.AsidePath("same.txt", sha256.Sum256([]byte("one")))
	l.want("both", map[string]string{"allsky-1/same.txt": "two", aside: "one"})
	l.retract(one)
	l.pull()
	l.want("the other one", map[string]string{"allsky-1/same.txt": "two"})
}

// Objects whose names are those of folders of other objects are mirrored under other names, whichever comes first, and go with them.
func TestFileAndFolder(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	large := strings.Repeat("0123456789abcdef", 9<<20/16)
	aside := func(path, body string) string {
		return "allsky-1/" + folder.AsidePath(path, sha256.Sum256([]byte(body)))
	}
	file := l.Put(archivetest.Camera, "clash", "a file", at(storm))
	l.Put(archivetest.Camera, "large", large, at(storm))
	l.Wait(l.Put(archivetest.Camera, "folder/deep/x.txt", "in a folder", at(storm)))
	l.pull()
	next := storm.AddDate(0, 0, 1)
	l.Put(archivetest.Camera, "clash/x.txt", "in a file", at(next))
	l.Put(archivetest.Camera, "large/x.txt", large+"in a file", at(next))
	l.Put(archivetest.Camera, "folder", large+"a file", at(next))
	l.Wait(l.Put(archivetest.Camera, "folder/deep", "a file in a folder", at(next)))
	want := map[string]string{
		"allsky-1/clash/x.txt": "in a file", aside("clash", "a file"): "a file",
		"allsky-1/large/x.txt": large + "in a file", aside("large", large): large,
		"allsky-1/folder/deep/x.txt": "in a folder", aside("folder", large+"a file"): large + "a file", aside("folder/deep", "a file in a folder"): "a file in a folder",
	}
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
			t.Errorf("with force %t there are %d files of %d objects", force, len(got), len(want))
		}
	}
	l.retract(file)
	l.pull()
	if got := l.files(); got[aside("clash", "a file")] != "" || got["allsky-1/clash/x.txt"] != "in a file" {
		t.Error("what is retracted stays, or what is not went with it")
	}
}
