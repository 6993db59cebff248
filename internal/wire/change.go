// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
)

// Changes are what manifests say of objects and the objects themselves do not: which were marked as duplicates, superseded, retracted,
// restored or purged, which path was given to which, and what was imported in place. Without them a manifest could not be rebuilt from
// the bucket alone. They are Manifests of an instrument and day that lie beside the data, under ChangesKey, and are created before the
// lines of the day's manifest that say the same. A record in them is the whole line of the object as the manifest has it from then on.
//
// If several records have one ID, a Duplicate one holds, then a Purged one, then the last by part and line. The object itself says better
// where its bytes lie: a compaction may have moved it since.

// ChangesSitePrefix is what all changes of a Site begin with.
func ChangesSitePrefix(site string) string { return "changes/" + site + "/" }

// ChangesInstrumentPrefix is what all changes of an instrument begin with.
func ChangesInstrumentPrefix(site, instrument string) string {
	return ChangesSitePrefix(site) + instrument + "/"
}

// ChangesPrefix is what the changes of an instrument and day of receipt begin with.
func ChangesPrefix(site, instrument string, day Day) string {
	return ChangesInstrumentPrefix(site, instrument) + string(day) + "/"
}

// ChangesKey is the key of changes: part is the number of the manifest's part that lists them, or the next number if a compacted day
// lists them. The digest is the file's, so that what is written twice is the same object.
func ChangesKey(site, instrument string, day Day, part int, digest Digest) string {
	return fmt.Sprintf("%s%d-%s.jsonl.zst", ChangesPrefix(site, instrument, day), part, hex.EncodeToString(digest[:8]))
}

// ChangesFile is what the key of changes says.
type ChangesFile struct {
	Site, Instrument string
	Day              Day
	Part             int
}

var changesKey = regexp.MustCompile(`^changes/([a-z0-9-]+)/([a-z0-9_-]+)/(\d{4}-\d{2}-\d{2})/([1-9]\d{0,8})-[0-9a-f]{16}\.jsonl\.zst$`)

// ParseChangesKey reads the key of changes. Errors: ErrMalformed.
func ParseChangesKey(key string) (ChangesFile, error) {
	m := changesKey.FindStringSubmatch(key)
	if m == nil {
		return ChangesFile{}, fmt.Errorf("key %q holds no changes: %w", key, ErrMalformed)
	}
	day, err := ParseDay(m[3])
	if err != nil {
		return ChangesFile{}, fmt.Errorf("key %q: %w", key, err)
	}
	part, err := strconv.Atoi(m[4])
	if err != nil {
		return ChangesFile{}, fmt.Errorf("key %q: %w", key, ErrMalformed)
	}
	return ChangesFile{Site: m[1], Instrument: m[2], Day: day, Part: part}, nil
}
