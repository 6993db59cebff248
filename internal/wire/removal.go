// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// CommandWriter stands in the place of a gateway for requests by which a person takes
// objects back.
const CommandWriter = "_command"

// ByRetention stands in the place of a person for what expired: its Instrument keeps
// nothing longer.
const ByRetention = "spec.archive.expiry"

// removalKeys begins the keys of Removals in the bucket of cursors.
const removalKeys = "removal."

// RemovalKeys are the keys of all Removals, as a subject.
const RemovalKeys = removalKeys + ">"

// Removal says which bytes are still to be removed from the archive. The archivist in office does it, however often it is begun, and
// deletes the entry after that.
type Removal struct {
	Instrument string `json:"instrument"`
	// Day of receipt.
	Day Day `json:"day"`
	// ID of the object: the manifest lists it as purged, or as a duplicate. Empty: the
	// whole day is due to expire, and what of it is not listed as purged yet will be.
	ID string `json:"id,omitempty"`
	// Found is the key where the bytes were found again, of an object or a pack; empty if they are where the manifest says.
	Found string `json:"found,omitempty"`
	// Reason, By and At are those of the purge.
	Reason string    `json:"reason"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
	// ForSpace: the day expires because the disk budget of the Site is nearly used up.
	ForSpace bool `json:"forSpace,omitempty"`
	// Confirmed says when partners that mirror the instrument removed the object too, by
	// partner. The entry stays until all have that may have a copy of it.
	Confirmed map[string]time.Time `json:"confirmed,omitempty"`
}

// Unconfirmed says whether a partner that may have a copy of the object has not removed it: the object was purged by request, and the
// partner did not confirm in the entry itself that it removed the copy. Partners are not asked to remove bytes of it that are found again
// here.
func (r Removal) Unconfirmed(partner string) bool {
	_, confirmed := r.Confirmed[partner]
	return r.ID != "" && r.By != ArchivistWriter && !confirmed
}

// Asks says whether a removal is asked of a partner that has so much of the day.
func (r Removal) Asks(partner string, has Totals) bool {
	return r.Unconfirmed(partner) && has.Objects+has.Datagrams > 0
}

// Key is the removal's key in the bucket of cursors.
func (r Removal) Key() string {
	key := removalKeys + r.Instrument + "." + string(r.Day)
	if r.ID == "" {
		return key
	}
	id := sha256.Sum256([]byte(r.ID))
	return key + "." + hex.EncodeToString(id[:16])
}

func (r *Removal) check() error {
	if _, err := ParseDay(string(r.Day)); err != nil || r.Instrument == "" {
		return fmt.Errorf("removal of %q of instrument %q, day %q: %w", r.ID, r.Instrument, r.Day, ErrMalformed)
	}
	return nil
}

// RetentionEntry says how long an instrument's data is kept.
type RetentionEntry struct {
	// MaxAgeMillis since receipt, and MaxSize in bytes of what is kept; 0 is no limit.
	MaxAgeMillis int64 `json:"maxAgeMillis,omitempty"`
	MaxSize      int64 `json:"maxSize,omitempty"`
	// HoldMillis is how long what is due waits for partners that have not got it.
	HoldMillis int64 `json:"holdMillis,omitempty"`
	// MaxShare is how much of the instrument's bytes may expire in one pass, in percent,
	// beside the oldest day that is due; 0: 10.
	MaxShare int `json:"maxShare,omitempty"`
	// WhenDiskFull: its objects can be made again, and expire before their time where the disk budget of the Site is nearly used up.
	WhenDiskFull bool `json:"whenDiskFull,omitempty"`
	// WhenMirrored: then days that partners have in full expire before their time.
	WhenMirrored bool `json:"whenMirrored,omitempty"`
}
