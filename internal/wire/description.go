// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"time"
)

// DescriptionBucket holds what an object store holds under DescriptionSitePrefix, for
// those who follow it; see DescriptionEntryKey.
func DescriptionBucket(site string) string { return "DESCRIPTIONS_" + site }

// DescriptionSitePrefix is what all descriptions of a Site begin with.
func DescriptionSitePrefix(site string) string { return "descriptions/" + site + "/" }

// Description is what an Instrument said of its data from a time on, until the next
// one of the instrument. Nothing of how it sends is in it, and nothing secret.
type Description struct {
	Site       string `json:"site"`
	Instrument string `json:"instrument"`
	// UID and Generation of the Instrument.
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	// From is when it came into force, in milliseconds. An instrument's first holds for
	// what is older, too.
	From time.Time `json:"from"`

	// The rest is as in InstrumentEntry.
	Station       string         `json:"station,omitempty"`
	CadenceMillis int64          `json:"cadenceMillis,omitempty"`
	MediaType     string         `json:"mediaType,omitempty"`
	About         *AboutEntry    `json:"about,omitempty"`
	Rights        *RightsEntry   `json:"rights,omitempty"`
	Channels      []ChannelEntry `json:"channels,omitempty"`
}

// DescriptionOf returns what an entry of the registry says of the data, from a time on.
func DescriptionOf(site string, e InstrumentEntry, from time.Time) Description {
	return Description{
		Site: site, Instrument: e.Instrument, UID: e.UID, Generation: e.Generation, From: from.UTC().Truncate(time.Millisecond),
		Station: e.Station, CadenceMillis: e.CadenceMillis, MediaType: e.MediaType, About: e.About, Rights: e.Rights, Channels: e.Channels,
	}
}

// Says tells descriptions apart by what they say: those that differ in Generation and
// From alone say the same.
func (d Description) Says() (Digest, error) {
	d.Generation, d.From = 0, time.Time{}
	data, err := Encode(d)
	return Digest(sha256.Sum256(data)), err
}

// Key is where the description lies in the bucket:
// descriptions/<site>/<instrument>/<13-digit ms of From>-<generation>.json.
func (d Description) Key() string {
	return DescriptionSitePrefix(d.Site) + d.Instrument + "/" + d.id() + ".json"
}

// EntryKey is its key in DescriptionBucket: <instrument>.<ms>-<generation>.
func (d Description) EntryKey() string { return d.Instrument + "." + d.id() }

func (d Description) id() string { return fmt.Sprintf("%013d-%d", d.From.UnixMilli(), d.Generation) }

var descriptionKey = regexp.MustCompile(`^descriptions/([a-z0-9-]+)/([a-z0-9_-]+)/(\d{13}-\d{1,18})\.json$`)

// DescriptionEntryKey returns the key in DescriptionBucket of what lies under a key of
// the bucket. Errors: ErrMalformed.
func DescriptionEntryKey(key string) (string, error) {
	m := descriptionKey.FindStringSubmatch(key)
	if m == nil {
		return "", fmt.Errorf("key %q is not a description: %w", key, ErrMalformed)
	}
	return m[2] + "." + m[3], nil
}

func (d *Description) check() error {
	if d.Site == "" || d.Instrument == "" || d.From.IsZero() {
		return fmt.Errorf("description of %.100q lacks site, instrument or from: %w", d.Instrument, ErrMalformed)
	}
	return nil
}
