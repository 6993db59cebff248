// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Mirrors see an object without a name as retracted or purged once it was so under the name that its bytes came with; readers do not see it.
func TestDuplicates(t *testing.T) {
	l := newLab(t)
	names := map[string]*wire.Record{}
	var all []wire.Record
	for i, name := range []string{"current", "retracted", "purged", "expired"} {
		named, nameless := object(noon, ""), object(noon.Add(time.Duration(i)*time.Second), name)
		named.ID = wire.NamedKey(site, camera, name, 1)
		named.Key, named.Name = named.ID, name
		nameless.State, nameless.DuplicateOf = wire.StateDuplicate, named.ID
		names[name] = &named
		all = append(all, nameless)
	}
	names["retracted"].Retract("a lamp", "anna", noon)
	names["purged"].Purge("a person", "anna", noon)
	names["expired"].Expire("kept for 48h", noon)
	repeat := object(noon, "repeat")
	repeat.State, repeat.DuplicateOf = wire.StateDuplicate, all[0].ID
	for _, r := range names {
		all = append(all, *r)
	}
	l.part(camera, append(all, repeat)...)
	l.flush()
	c := l.catalog(nil)
	l.ready(c)
	day := l.day(c, camera, wire.DayOf(noon))
	l.same("readers see", []string{"Current n/current", "Purged n/expired", "Purged n/purged", "Retracted n/retracted"}, paths(day.Records))
	l.same("mirrors see", []string{"Retracted retracted", "Purged purged"}, paths(day.TakenBack()))
}
