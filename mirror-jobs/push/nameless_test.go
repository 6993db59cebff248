// SPDX-License-Identifier: Apache-2.0

package push_test

import (
	"testing"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
)

// The bytes of an object without a name come again with a name, and the archive lists the first object as a duplicate of the second. Once
// the one with the name is retracted no copy is left.
func TestNamelessAndNamed(t *testing.T) {
	byEach(t, func(t *testing.T, l *lab) {
		l.entry.Retractions = wire.MirrorDelete
		nameless := l.Put(archivetest.Camera, "r/first", "person", at(storm), func(r *wire.Record) { r.Key = wire.RawKey(archivetest.Site, archivetest.Camera, storm, r.Digest) })
		l.Wait(nameless)
		want := map[string]string{"allsky-1/r/first": "person"}
		for _, name := range []string{"a", "b", "c", "d"} { // what goes is a small share
			l.Wait(l.Put(archivetest.Camera, name, name, at(storm)))
			want["allsky-1/"+name] = name
		}
		l.push(5)
		named := l.Put(archivetest.Camera, "n/person.jpg", "person", named("n/person.jpg"), at(storm))
		l.Wait(named)
		l.MarkDuplicate(archivetest.Camera, nameless, named)
		if err := l.run(); err != nil {
			t.Fatal(err)
		}
		want["allsky-1/n/person.jpg"] = "person"
		l.want("with a name", want)
		l.become(&named, wire.StateRetracted, "a person is in the picture")
		l.push(0)
		delete(want, "allsky-1/r/first")
		delete(want, "allsky-1/n/person.jpg")
		l.want("retracted", want)
	})
}
