// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"errors"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// The index names files of an open day that the bucket does not have, as in a copy of a Site that was made while it ran: readers
// get what the bucket lists. If it lists nothing, they learn that the manifest is missing.
func TestFilesThatTheBucketLacks(t *testing.T) {
	l := newLab(t)
	c := l.catalog(func(cfg *Config) { cfg.Store = l.Store })
	day := wire.DayOf(noon)
	var all []wire.Record
	for i := range 4 {
		r := object(noon.Add(time.Duration(i)*time.Minute), "a/"+string(rune('1'+i)))
		all = append(all, r)
		l.part(camera, r)
	}
	l.flush()
	l.ready(c)
	remove := func(numbers ...int) {
		t.Helper()
		for _, n := range numbers {
			if err := l.Store.Delete(t.Context(), wire.ManifestPartKey(site, camera, day, n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove(3, 4)
	d, err := c.Day(t.Context(), camera, day)
	if err != nil || len(d.Records) != 2 {
		t.Fatalf("%+v, %v", d, err)
	}
	before := d.Tag
	for _, r := range all[:2] {
		if _, err := c.Find(t.Context(), camera, r.Path); err != nil {
			t.Errorf("%s: %v", r.Path, err)
		}
	}
	// Later parts have the numbers of the files that are gone.
	l.PutPart(camera, day, 3, all[3])
	if d, err = c.Day(t.Context(), camera, day); err != nil || len(d.Records) != 3 || d.Tag == before {
		t.Errorf("%+v, %v", d, err)
	}
	remove(1, 2, 3)
	_, err = c.Day(t.Context(), camera, day)
	if !errors.Is(err, manifest.ErrMissing) || errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("of a day without a manifest: %v", err)
	}
}
