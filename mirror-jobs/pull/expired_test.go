// SPDX-License-Identifier: Apache-2.0

package pull_test

import (
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/folder"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// A name that is used again after its object expired gives the next version there: the copy of the first one stays, since it is the last.
func TestNameUsedAgainAfterExpiry(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Prune = plan.PruneNever
	one := l.Put(archivetest.Camera, "1.jpg", "one", at(storm))
	l.Wait(one)
	l.pull()
	one.Expire("expired: kept for 48h0m0s", storm.AddDate(0, 1, 0))
	l.Announce(archivetest.Camera, one)
	l.Until("it has expired", func() bool { return strings.Contains(l.listOf("2015-03-17"), "State:Expired") })
	l.pull()
	l.Wait(l.Put(archivetest.Camera, "1.jpg", "two", at(storm.AddDate(0, 0, 1)), otherID, func(r *wire.Record) { r.Version = 2 }))
	l.pull()
	l.want("both", map[string]string{"allsky-1/1.jpg": "two", "allsky-1/" + folder.AsidePath("1.jpg", sha256.Sum256([]byte("one"))): "one"})
}
