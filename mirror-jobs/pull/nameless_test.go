// SPDX-License-Identifier: Apache-2.0

package pull_test

import (
	"testing"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
)

// The bytes of an object without a name come again with a name, and the archive lists the first object as a duplicate of the second. Once
// the one with the name is retracted no copy is left.
func TestNamelessAndNamed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	nameless := l.Put(archivetest.Camera, "r/first", "person", at(storm), func(r *wire.Record) { r.Key = wire.RawKey(archivetest.Site, archivetest.Camera, storm, r.Digest) })
	l.Wait(nameless)
	l.pull()
	l.want("without a name", map[string]string{"allsky-1/r/first": "person"})
	named := l.putVersion("n/person.jpg", "person", 1, storm, "")
	l.Wait(named)
	l.MarkDuplicate(archivetest.Camera, nameless, named)
	l.pull()
	l.want("with a name", map[string]string{"allsky-1/r/first": "person", "allsky-1/n/person.jpg": "person"})
	l.retract(named)
	l.pull()
	l.want("retracted", map[string]string{})
}
