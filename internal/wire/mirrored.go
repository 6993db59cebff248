// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"strings"
	"time"
)

// Objects that a run of a mirror pulls go into the archive through a gateway, like those that any sender sends. The run
// puts each object to MirroredPath on the gateway's mirror listener, with a MirroredObject in HeaderRecord.
// GatewayStatus.Mirror says where that is.

// HeaderRecord is the header of a request that holds a MirroredObject. The object's metadata in the bucket has a record
// under the same name.
const HeaderRecord = MetadataRecord

// mirroredRoot begins the paths of the mirror listener.
const mirroredRoot = "/mirror/"

// MirroredPath is where a run of a partner puts the objects of an instrument: a guest, or one of the Site itself.
func MirroredPath(partner, instrument string) string {
	return mirroredRoot + partner + "/" + instrument
}

// ParseMirroredPath reads what MirroredPath wrote, and returns false for other paths.
func ParseMirroredPath(path string) (partner, instrument string, ok bool) {
	rest, ok := strings.CutPrefix(path, mirroredRoot)
	partner, instrument, both := strings.Cut(rest, "/")
	if !ok || !both || !instrumentLabel.MatchString(partner) {
		return "", "", false
	}
	own := instrument
	if origin, there, isGuest := ParseGuestName(instrument); isGuest {
		if !instrumentLabel.MatchString(origin) {
			return "", "", false
		}
		own = there
	}
	return partner, instrument, instrumentLabel.MatchString(own)
}

// MirroredObject says what a run of a mirror knows of an object whose bytes follow. For one without an Origin, which
// becomes an object of an instrument of the Site itself, it may say no more than the path.
type MirroredObject struct {
	// Origin of a guest's object.
	Origin *Origin `json:"origin,omitempty"`
	// Path under which the object is published at the other side, below its instrument.
	Path string `json:"path"`
	// Size in bytes, and Digest of the object, where they are known before its bytes.
	Size      int64  `json:"size,omitempty"`
	Digest    Digest `json:"sha256,omitzero"`
	MediaType string `json:"mediaType,omitempty"`
	// Listed: the run saw it listed at the Site that pulls, whose store has lost it.
	Listed bool `json:"listed,omitempty"`
	// Version of its name there, from 2 on.
	Version      int          `json:"version,omitempty"`
	ObservedFrom *time.Time   `json:"observedFrom,omitempty"`
	ObservedTo   *time.Time   `json:"observedTo,omitempty"`
	ReceivedAt   time.Time    `json:"receivedAt,omitzero"`
	TimeSource   TimeSource   `json:"timeSource,omitempty"`
	Completeness Completeness `json:"completeness,omitempty"`
}

// maxMediaTypeSaid is how long a media type may be, in bytes.
const maxMediaTypeSaid = 127

func (m *MirroredObject) check() error {
	if err := CheckName(m.Path); err != nil {
		return fmt.Errorf("mirrored object: path: %w", err)
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("mirrored object %q: %s: %w", m.Path, fmt.Sprintf(format, args...), ErrMalformed)
	}
	switch {
	case m.Size < 0 || m.Version < 0:
		return bad("its size %d, or version %d, is negative", m.Size, m.Version)
	case len(m.MediaType) > maxMediaTypeSaid || strings.ContainsFunc(m.MediaType, func(r rune) bool { return r < ' ' || r > '~' }):
		return bad("%.200q is not a media type of at most %d bytes", m.MediaType, maxMediaTypeSaid)
	case m.TimeSource != "" && !m.TimeSource.known():
		return bad("its timeSource is %.100q: it must be Received, Name or Payload", m.TimeSource)
	case m.Completeness != "" && m.Completeness != CompletenessVerified && m.Completeness != CompletenessUnverified:
		return bad("its completeness is %.100q: it must be Verified or Unverified", m.Completeness)
	case !m.ReceivedAt.IsZero() && !keyTime(m.ReceivedAt):
		return bad("its time of receipt does not fit a key: %v", m.ReceivedAt)
	case m.Origin == nil:
		return nil
	case m.Origin.Site == "":
		return bad("its origin names no Site")
	case CheckKey(m.Origin.ID) != nil:
		return bad("its ID at its origin is invalid: %.100q", m.Origin.ID)
	case m.ReceivedAt.IsZero() || m.TimeSource == "" || m.Digest == (Digest{}):
		return bad("it has an origin, but lacks receivedAt, timeSource or sha256")
	}
	return nil
}

// keyTime says whether keys can tell a time: in 13 digits, from 1970 to 2286.
func keyTime(t time.Time) bool {
	const end = 10_000_000_000_000
	ms := t.UnixMilli()
	return !t.Before(time.Unix(0, 0)) && ms < end
}

// Header returns the value of HeaderRecord.
func (m MirroredObject) Header() (string, error) {
	record, err := Encode(m)
	return asciiJSON(record), err
}

// ParseMirroredObject reads what Header wrote. Errors: ErrMalformed, ErrNewerFormat.
func ParseMirroredObject(header string) (MirroredObject, error) {
	return Decode[MirroredObject]([]byte(header))
}
