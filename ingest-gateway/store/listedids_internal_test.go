// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/wire"
)

// The memory of listed days is bounded: if there are more, the days that were read first are forgotten.
func TestListedIDsAreBounded(t *testing.T) {
	t.Parallel()
	var l listedIDs
	begun := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	const days, of = 9, maxListed / 4
	for i := range days {
		d := &knownDay{at: begun.Add(time.Duration(i) * time.Minute)}
		for n := range of {
			var id manifest.IDHash
			binary.BigEndian.PutUint64(id[:], uint64(n))
			d.ids = append(d.ids, id)
		}
		l.remember(listedDay{"arctic_mag-1", wire.DayOf(begun.AddDate(0, 0, -i))}, d)
		l.remember(listedDay{"arctic_mag-1", wire.DayOf(begun.AddDate(0, 0, -i))}, d) // once more
		if l.count > maxListed || l.count != len(l.days)*d.cost() {
			t.Fatalf("after %d days %d are remembered, of %d", i+1, l.count, len(l.days))
		}
	}
	if _, newest := l.days[listedDay{"arctic_mag-1", wire.DayOf(begun.AddDate(0, 0, 1-days))}]; !newest || len(l.days) != 3 {
		t.Errorf("%d days are remembered, the newest %t", len(l.days), newest)
	}
	large := &knownDay{at: begun.Add(time.Hour), ids: make([]manifest.IDHash, 2*maxListed)}
	if l.remember(listedDay{"arctic_mag-1", "2020-01-01"}, large); len(l.days) != 1 {
		t.Errorf("beside one that is too large %d days are remembered", len(l.days)-1)
	}
}

// A day that was not over is read less often than one that may be packed soon.
func TestListedIDsHold(t *testing.T) {
	t.Parallel()
	d := &knownDay{at: time.Date(2026, 11, 21, 23, 59, 59, 0, time.UTC)}
	for day, want := range map[wire.Day]time.Duration{"2026-11-20": listedFor, "2026-11-21": openFor, "2026-11-22": openFor} {
		if got := d.holds(day); got != want {
			t.Errorf("%s: %v", day, got)
		}
	}
}
