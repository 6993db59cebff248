// SPDX-License-Identifier: Apache-2.0

package pull_test

import (
	"strings"
	"testing"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// An origin that was restored from a backup does not list a retraction any more that was made after it: the object stays away, also with
// force, and comes again only where retractions are ignored.
func TestRetractionAfterTheBackup(t *testing.T) {
	t.Parallel()
	l, restored := newLab(t), newLab(t)
	one := l.Put(archivetest.Camera, "1.jpg", "one", at(storm))
	l.Wait(one)
	restored.Wait(restored.Put(archivetest.Camera, "1.jpg", "one", at(storm)))
	l.pull()
	l.retract(one)
	l.pull()
	l.URL = restored.URL
	for _, force := range []bool{false, true} {
		l.force = force
		l.pull()
		l.want("what was retracted", map[string]string{})
	}
	if l.last.Kept != 1 || !strings.Contains(l.log.String(), "--retractions Ignore") {
		t.Errorf("the run reports %+v: %s", l.last, &l.log)
	}
	l.force, l.Retractions = false, plan.RetractionsIgnore
	l.pull()
	l.want("with Ignore", map[string]string{"allsky-1/1.jpg": "one"})
}
