// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// GuestCopySitePrefix is what all copies of guests' entries of a Site begin with.
func GuestCopySitePrefix(site string) string { return "guests/" + site + "/" }

// GuestCopyKey is where a copy of a guest's entry of the registry lies in the object store: the same bytes; digest is their SHA-256.
// Guest is the name of the guest here. The last copy of a guest is the one in force: guests/<site>/<origin>_<instrument>/<13-digit ms of
// copiedAt>-<16 hex of digest>.json.
func GuestCopyKey(site, guest string, copiedAt time.Time, digest Digest) string {
	return GuestCopySitePrefix(site) + guest + "/" + ShortID(copiedAt, digest) + ".json"
}

var guestCopyKey = regexp.MustCompile(`^guests/[a-z0-9-]+/([a-z0-9-]+` + guestSeparator + `[a-z0-9-]+)/(\d{13})-[0-9a-f]{16}\.json$`)

// ParseGuestCopyKey returns the guest whose copy lies under a key, and when it was copied, in milliseconds. Errors: ErrMalformed.
func ParseGuestCopyKey(key string) (guest string, copiedAt time.Time, err error) {
	m := guestCopyKey.FindStringSubmatch(key)
	if m == nil {
		return "", time.Time{}, fmt.Errorf("key %q is not a copy of a guest's entry: %w", key, ErrMalformed)
	}
	ms, err := strconv.ParseInt(m[2], 10, 64)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("key %q: %w", key, ErrMalformed)
	}
	return m[1], time.UnixMilli(ms).UTC(), nil
}
