// SPDX-License-Identifier: Apache-2.0

package access

import (
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	old, fresh := now.Add(-25*time.Hour), now.Add(-time.Minute)
	public := &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}
	split := &wire.AccessEntry{Live: wire.AccessRestricted, Archive: wire.AccessPublic, Readers: []string{"uni"}}
	embargo := &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic, EmbargoMillis: (24 * time.Hour).Milliseconds(), Readers: []string{"uni"}}
	unknown := &wire.AccessEntry{Live: "Friends", Archive: ""}
	stranger, uni, other := Reader{}, Reader{"uni"}, Reader{"other"}
	for _, c := range []struct {
		name   string
		door   Door
		reader Reader
		entry  *wire.AccessEntry
		at     time.Time
		want   Verdict
	}{
		{"public for a stranger", Live, stranger, public, fresh, Granted},
		{"nothing declared, a stranger", Archive, stranger, nil, old, NeedsReader},
		{"nothing declared, a reader", Archive, other, nil, old, Granted},
		{"restricted, a stranger", Live, stranger, split, fresh, NeedsReader},
		{"restricted, another reader", Live, other, split, fresh, Forbidden},
		{"restricted, its reader", Live, uni, split, fresh, Granted},
		{"its archive is public", Archive, stranger, split, fresh, Granted},
		{"under embargo, a stranger", Archive, stranger, embargo, fresh, Hidden},
		{"under embargo, live", Live, other, embargo, fresh, Hidden},
		{"under embargo, its reader", Live, uni, embargo, fresh, Granted},
		{"embargo over", Archive, stranger, embargo, old, Granted},
		{"the last moment of an embargo", Archive, stranger, embargo, now.Add(-24*time.Hour + 1), Hidden},
		{"the instrument as such", Archive, stranger, embargo, time.Time{}, Granted},
		{"unknown word", Live, other, unknown, fresh, Forbidden},
		{"unknown word, a stranger", Live, stranger, unknown, fresh, NeedsReader},
		{"no word", Archive, other, unknown, fresh, Forbidden},
	} {
		if got := Decide(c.door, c.reader, c.entry, c.at, now); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestNarrower(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{"", wire.AccessPublic, wire.AccessPublic},
		{wire.AccessPublic, wire.AccessRestricted, wire.AccessRestricted},
		{wire.AccessRestricted, wire.AccessPublic, wire.AccessRestricted},
		{wire.AccessAuthenticated, wire.AccessPublic, wire.AccessAuthenticated},
		{"Friends", wire.AccessPublic, "Friends"},
		{wire.AccessPublic, "Friends", "Friends"},
	} {
		if got := Narrower(c[0], c[1]); got != c[2] {
			t.Errorf("%q and %q: %q, want %q", c[0], c[1], got, c[2])
		}
	}
}
