// SPDX-License-Identifier: Apache-2.0

package names

import (
	"github.com/substorm/substorm/internal/wire"
)

// listed is a name, its versions that the archive lists, and whether there are names below it.
type listed struct {
	instrument, name string
	versions         map[int]wire.NameVersion
	folder           bool
}

// claimOf returns the name and the version that an object claimed; false for one that
// claimed none, as what was imported.
func claimOf(site, instrument string, r wire.Record) (wire.NameVersion, bool) {
	version := max(r.Version, 1)
	if r.Name == "" || r.ID != wire.NamedKey(site, instrument, r.Name, version) || r.Digest == (wire.Digest{}) {
		return wire.NameVersion{}, false
	}
	return wire.NameVersion{Version: version, Digest: r.Digest, Size: r.Size, Key: r.ID,
		ReceivedAt: r.ReceivedAt, Gateway: r.Gateway, Incarnation: r.Incarnation, Announced: true}, true
}

// merge adds to a claim, empty if there was none, what the archive lists. The claim's own content stays: conflicts are
// the versions for which the archive lists other bytes. A version that neither knows was claimed once, and its object
// never stored: it keeps its number, and no object has its digest.
func merge(site string, claim wire.NameClaim, l *listed) (merged wire.NameClaim, changed bool, conflicts []wire.NameVersion) {
	last := len(claim.Versions)
	for version := range l.versions {
		last = max(last, version)
	}
	merged.Name, merged.Folder = l.name, claim.Folder || l.folder
	changed = merged.Folder != claim.Folder
	for number := 1; number <= last; number++ {
		var claimed wire.NameVersion
		if number <= len(claim.Versions) {
			claimed = claim.Versions[number-1]
		} else {
			claimed = wire.NameVersion{Version: number, Key: wire.NamedKey(site, l.instrument, l.name, number)}
			changed = true
		}
		known, found := l.versions[number]
		switch {
		case !found:
		case claimed.Digest == wire.Digest{}:
			claimed, changed = known, true
		case claimed.Digest != known.Digest:
			conflicts = append(conflicts, known)
		case !claimed.Announced:
			claimed.Announced, changed = true, true
		}
		merged.Versions = append(merged.Versions, claimed)
	}
	return merged, changed, conflicts
}
