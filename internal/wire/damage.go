// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// DamageCause says what is wrong with a stored object.
type DamageCause string

// The values of DamageCause. Damaged: the bytes are not those that were received. Missing: there are no bytes where the manifest says.
const (
	DamageDamaged DamageCause = "Damaged"
	DamageMissing DamageCause = "Missing"
)

const damageKey = "damaged."

// DamageKey is where the status bucket says that an object is damaged. The program that finds the damage writes there; the scrub of the
// lease holder confirms the entry, or removes it.
func DamageKey(instrument, id string) string {
	sum := sha256.Sum256([]byte(id))
	return damageKey + instrument + "." + hex.EncodeToString(sum[:16])
}

// DamageKeys matches all keys of DamageKey.
const DamageKeys = damageKey + "*.*"

// ParseDamageKey returns the instrument that a key of the status bucket names, and
// false for other keys.
func ParseDamageKey(key string) (instrument string, ok bool) {
	p := strings.Split(key, ".")
	if len(p) != 3 || p[0]+"." != damageKey || slices.Contains(p, "") {
		return "", false
	}
	return p[1], true
}

// Damage says that the bytes of an object are not those that were received.
type Damage struct {
	Instrument string `json:"instrument"`
	// Day of receipt: whose manifest lists it.
	Day    Day    `json:"day"`
	ID     string `json:"id"`
	Key    string `json:"key"`
	Size   int64  `json:"size"`
	Digest Digest `json:"sha256"`
	Path   string `json:"path,omitempty"`
	// FoundAt, and FoundBy which pod.
	Cause   DamageCause `json:"cause"`
	FoundAt time.Time   `json:"foundAt"`
	FoundBy string      `json:"foundBy"`
	// Confirmed by the scrub, which looked twice: the ledger has it.
	Confirmed bool `json:"confirmed,omitempty"`
	// RepairedAt is when the bytes were stored again: the scrub checks them, and removes the entry.
	RepairedAt *time.Time `json:"repairedAt,omitempty"`
}

func (d *Damage) check() error {
	if d.Instrument == "" || d.ID == "" || d.Key == "" || d.Cause == "" {
		return fmt.Errorf("damage of %q lacks instrument, id, key or cause: %w", d.ID, ErrMalformed)
	}
	if _, err := ParseDay(string(d.Day)); err != nil {
		return fmt.Errorf("damage of %q: %w", d.ID, err)
	}
	return nil
}

// DamageOf says that an object is damaged.
func DamageOf(instrument string, r Record, cause DamageCause, by string, at time.Time) Damage {
	return Damage{Instrument: instrument, Day: DayOf(r.ReceivedAt), ID: r.ID, Key: r.Key, Size: r.Size, Digest: r.Digest, Path: r.Path,
		Cause: cause, FoundAt: at.UTC(), FoundBy: by}
}
