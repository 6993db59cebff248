// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"testing"

	"github.com/substorm/substorm/internal/wire"
)

// Mirrors see an object without a name as retracted once its bytes came with one, or had come on another day, and as purged once these were
// purged. Readers see neither, and nobody sees a repeat of an object of the same day.
func TestDuplicates(t *testing.T) {
	l := newLab(t)
	named := object(noon, "")
	named.ID = wire.NamedKey(site, camera, "frame.jpg", 1)
	named.Key, named.Name = named.ID, "frame.jpg"
	first, second, repeat, later := object(noon, "a.jpg"), object(noon, "b.jpg"), object(noon, "c.jpg"), object(noon, "d.jpg")
	for _, r := range []*wire.Record{&first, &second} {
		r.State, r.DuplicateOf = wire.StateDuplicate, named.ID
	}
	second.Reason, second.ChangedBy, second.PurgedAt = "a person", "anna", &noon
	repeat.State, repeat.DuplicateOf = wire.StateDuplicate, first.ID
	later.State, later.DuplicateOf = wire.StateDuplicate, object(noon.AddDate(0, 0, -1), "a.jpg").ID
	l.part(camera, named, first, second, repeat, later)
	l.flush()
	c := l.catalog(nil)
	l.ready(c)
	day := l.day(c, camera, wire.DayOf(noon))
	l.same("readers see", []string{"Current n/frame.jpg"}, paths(day.Records))
	l.same("mirrors see", []string{"Retracted a.jpg", "Purged b.jpg", "Retracted d.jpg"}, paths(day.Duplicates))
}
