// SPDX-License-Identifier: Apache-2.0

package pull_test

import (
	"crypto/sha256"
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
