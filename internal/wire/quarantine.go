// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// AdoptWriter stands in the place of a gateway for what was adopted out of the
// quarantine: in records, as the source of notices, and in the ledger.
const AdoptWriter = "_adopt"

// MetadataQuarantined is Quarantined as JSON, in the user metadata of what lies
// in the quarantine.
const MetadataQuarantined = "Substorm-Quarantined"

// QuarantinePrefix is what all of a Site's quarantine begins with.
func QuarantinePrefix(site string) string { return "quarantine/" + site + "/" }

// QuarantineKey is where a gateway keeps what an unknown sender sent:
// quarantine/<site>/<gateway>/<13-digit ms>-<16 hex of digest>.
func QuarantineKey(site, gateway string, receivedAt time.Time, digest Digest) string {
	return QuarantinePrefix(site) + gateway + "/" + ShortID(receivedAt, digest)
}

var quarantineKey = regexp.MustCompile(`^quarantine/[^/]+/([^/_][^/]*)/(\d{13})-[0-9a-f]{16}$`)

// ParseQuarantineKey reads what QuarantineKey wrote. It returns false for other
// keys, adoptions among them.
func ParseQuarantineKey(key string) (gateway string, receivedAt time.Time, ok bool) {
	m := quarantineKey.FindStringSubmatch(key)
	if m == nil {
		return "", time.Time{}, false
	}
	ms, _ := strconv.ParseInt(m[2], 10, 64) // 13 digits fit
	return m[1], time.UnixMilli(ms).UTC(), true
}

// AdoptionPrefix is what the keys of a Site's adoptions on their way begin with.
func AdoptionPrefix(site string) string { return QuarantinePrefix(site) + AdoptWriter + "/" }

// AdoptionKey is where an adoption stands until it is done.
func AdoptionKey(site, id string) string { return AdoptionPrefix(site) + id + ".json" }

// Quarantined describes what an unknown sender sent.
type Quarantined struct {
	// Protocol is ProtocolTCP for an object, ProtocolUDP for datagrams as a segment.
	Protocol string `json:"protocol"`
	// Source is the sender's address, of TCP with its port. Port is the gateway's.
	Source string `json:"source"`
	Port   uint16 `json:"port"`
	// ReceivedAt is when the last byte came, FirstAt the first datagram.
	ReceivedAt time.Time  `json:"receivedAt"`
	FirstAt    *time.Time `json:"firstAt,omitempty"`
	Datagrams  int        `json:"datagrams,omitempty"`
	Size       int64      `json:"size"`
	Digest     Digest     `json:"sha256"`
	// Looks is what the bytes look like, as a media type.
	Looks string `json:"looks,omitempty"`
}

// Metadata is the S3 user metadata.
func (q Quarantined) Metadata() (map[string]string, error) {
	b, err := Encode(q)
	if err != nil {
		return nil, err
	}
	return map[string]string{MetadataFormat: strconv.Itoa(Format), MetadataQuarantined: asciiJSON(b)}, nil
}

// QuarantinedFromMetadata reads what Metadata wrote. Errors: ErrMalformed,
// ErrNewerFormat.
func QuarantinedFromMetadata(metadata map[string]string) (Quarantined, error) {
	return Decode[Quarantined]([]byte(metadata[MetadataQuarantined]))
}

// Adoption is the decision that an instrument gets some of the quarantine. It is
// written before anything is moved, so that one that was cut short is finished,
// and counted once.
type Adoption struct {
	ID         string    `json:"id"`
	Instrument string    `json:"instrument"`
	DecidedAt  time.Time `json:"decidedAt"`
	Items      []Adopted `json:"items"`
}

// Adopted is one thing that is adopted.
type Adopted struct {
	// From is its key in the quarantine.
	From string `json:"from"`
	Quarantined
}

func (a *Adoption) check() error {
	for _, item := range a.Items {
		if _, _, ok := ParseQuarantineKey(item.From); !ok {
			return fmt.Errorf("adoption %q names %q, which does not lie in the quarantine: %w", a.ID, item.From, ErrMalformed)
		}
	}
	if a.ID == "" || a.Instrument == "" {
		return fmt.Errorf("an adoption without an id or instrument: %w", ErrMalformed)
	}
	return nil
}
