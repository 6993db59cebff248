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
	analysis := &wire.AccessEntry{Live: wire.AccessRestricted, Archive: wire.AccessRestricted, Readers: []string{"consumer:analysis", "uni"}}
	mirrored := &wire.AccessEntry{Live: wire.AccessRestricted, Archive: wire.AccessRestricted, EmbargoMillis: (24 * time.Hour).Milliseconds(), Readers: []string{"mirror:nmdc"}}
	anonymous, uni, other := Reader{}, SiteReader("uni"), SiteReader("other")
	selects := map[string]bool{"mag": true}
	for _, c := range []struct {
		name     string
		endpoint Endpoint
		reader   Reader
		entry    *wire.AccessEntry
		at       time.Time
		want     Verdict
	}{
		{"public for an anonymous reader", Live, anonymous, public, fresh, Granted},
		{"nothing declared, an anonymous reader", Archive, anonymous, nil, old, NeedsReader},
		{"nothing declared, a reader", Archive, other, nil, old, Granted},
		{"restricted, an anonymous reader", Live, anonymous, split, fresh, NeedsReader},
		{"restricted, another reader", Live, other, split, fresh, Forbidden},
		{"restricted, its reader", Live, uni, split, fresh, Granted},
		{"its archive is public", Archive, anonymous, split, fresh, Granted},
		{"under embargo, an anonymous reader", Archive, anonymous, embargo, fresh, Hidden},
		{"under embargo, live", Live, other, embargo, fresh, Hidden},
		{"under embargo, its reader", Live, uni, embargo, fresh, Granted},
		{"embargo over", Archive, anonymous, embargo, old, Granted},
		{"the last moment of an embargo", Archive, anonymous, embargo, now.Add(-24*time.Hour + 1), Hidden},
		{"the instrument as such", Archive, anonymous, embargo, time.Time{}, Granted},
		{"unknown word", Live, other, unknown, fresh, Forbidden},
		{"unknown word, an anonymous reader", Live, anonymous, unknown, fresh, NeedsReader},
		{"its archive is public, a consumer of its name", Archive, Consumer("uni", selects), split, fresh, Granted},
		{"a consumer of its name is another identity, live", Live, Consumer("uni", selects), split, fresh, Forbidden},
		{"a consumer of its name, restricted", Archive, Consumer("uni", selects), analysis, fresh, Forbidden},
		{"a consumer of its name, under embargo", Archive, Consumer("uni", selects), embargo, fresh, Hidden},
		{"a consumer that is named", Archive, Consumer("analysis", selects), analysis, fresh, Granted},
		{"a reader of its name is another identity", Archive, SiteReader("analysis"), analysis, fresh, Forbidden},
		{"a reader that pretends to be it", Archive, SiteReader("consumer:analysis"), analysis, fresh, Forbidden},
		{"a consumer that is named and does not select it", Archive, Consumer("analysis", map[string]bool{"cam": true}), analysis, fresh, Forbidden},
		{"authenticated, a consumer that selects it", Archive, Consumer("other", selects), nil, old, Granted},
		{"authenticated, one that does not", Archive, Consumer("other", nil), nil, old, Forbidden},
		{"authenticated, one that does not, live", Live, Consumer("other", nil), nil, old, Forbidden},
		{"public, one that does not", Archive, Consumer("other", nil), public, old, Granted},
		{"no word", Archive, other, unknown, fresh, Forbidden},
		{"a mirror that selects it", Archive, Mirror("uni", selects, false), nil, fresh, Granted},
		{"a mirror that does not", Archive, Mirror("uni", nil, true), nil, fresh, Forbidden},
		{"restricted, a mirror that is not named", Archive, Mirror("uni", selects, true), analysis, fresh, Forbidden},
		{"restricted, a mirror that is named", Archive, Mirror("nmdc", selects, false), mirrored, old, Granted},
		{"restricted, a mirror that is named and does not select it", Archive, Mirror("nmdc", nil, false), mirrored, old, Forbidden},
		{"a reader that pretends to be a mirror", Archive, SiteReader("mirror:nmdc"), mirrored, old, Forbidden},
		{"under embargo, a mirror that is named and excludes it", Archive, Mirror("nmdc", selects, false), mirrored, fresh, Hidden},
		{"under embargo, a mirror that includes it", Archive, Mirror("other", selects, true), embargo, fresh, Granted},
		{"under embargo, a mirror of a reader's name that excludes it", Archive, Mirror("uni", selects, false), embargo, fresh, Hidden},
	} {
		if got := Decide(c.endpoint, c.reader, "mag", c.entry, c.at, now); got != c.want {
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
