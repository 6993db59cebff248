// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// A Site that pulls from another one lists that Site's instruments beside its own: a guest is an instrument of another Site, the origin,
// as this Site has it. Its name here begins with the origin's code, so that all names are different and none is the name of an
// Instrument. Objects pulled from it lie below the keys of that name: a bucket may be shared, and o/<origin>/ in it is the origin's own,
// which the origin's archivist sweeps.

// guestSeparator is in no DNS label; both parts of a guest's name are DNS labels.
const guestSeparator = "_"

// GuestName is the name here of an instrument of another Site.
func GuestName(origin, instrument string) string { return origin + guestSeparator + instrument }

// ParseGuestName returns the parts of a guest's name, and false for the name of an instrument of the Site itself.
func ParseGuestName(name string) (origin, instrument string, ok bool) {
	origin, instrument, ok = strings.Cut(name, guestSeparator)
	return origin, instrument, ok && origin != "" && instrument != ""
}

// IsGuest says whether a name is the name of an instrument of another Site.
func IsGuest(name string) bool {
	_, _, ok := ParseGuestName(name)
	return ok
}

// Origin says where an object comes from that was pulled from another Site.
type Origin struct {
	// Site is the other Site's code.
	Site string `json:"site"`
	// ID is the object's ce-id there: its key, or the key of its pack and its place there (KeyOfID). With the digest it identifies the
	// object among all others of that Site.
	ID string `json:"id"`
	// RetractedAt is when the object was retracted there, where the archive here followed that: an older restoration there does not undo it.
	RetractedAt *time.Time `json:"retractedAt,omitempty"`
}

// ObjectID is the ID, and the key, of an object of a guest, which follow from where it comes from and from its bytes: however often it is
// pulled, it is one object. An origin that was installed again under its code, or restored from an older backup, gives the ID of an
// earlier object to other bytes: they are another object here, and both are kept.
func (o Origin) ObjectID(site, instrument string, receivedAt time.Time, digest Digest) string {
	return RawKey(site, instrument, receivedAt, sha256.Sum256([]byte(o.Site+"\x00"+o.ID+"\x00"+digest.String())))
}

const registryGuest = "guest."

// RegistryGuestKey is the key of a guest's entry in the registry. The runs of mirrors that pull from the origin write
// it, and the archivist where it was lost: see GuestCopyKey.
func RegistryGuestKey(origin, instrument string) string {
	return registryGuest + origin + "." + instrument
}

// ParseRegistryGuestKey returns the guest that a key names, and false for other keys.
func ParseRegistryGuestKey(key string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(key, registryGuest)
	origin, instrument, both := strings.Cut(rest, ".")
	return GuestName(origin, instrument), ok && both && instrumentLabel.MatchString(origin) && instrumentLabel.MatchString(instrument)
}

// MaxGuests is how many instruments of one other Site stand beside the Site's own: each gateway and feed server holds all of them.
const MaxGuests = 10_000

// GuestEntry is an instrument of another Site as that Site describes it. The rights, and who may read it, are those that
// it has there.
type GuestEntry struct {
	// Origin is the code of the other Site, Instrument the name there.
	Origin     string `json:"origin"`
	Instrument string `json:"instrument"`
	// Partner is the MirrorPartner whose run said so, and SaidAt when, by the other Site's clock.
	Partner string    `json:"partner"`
	SaidAt  time.Time `json:"saidAt"`

	Access    *AccessEntry `json:"access,omitempty"`
	Rights    *RightsEntry `json:"rights,omitempty"`
	About     *AboutEntry  `json:"about,omitempty"`
	Station   string       `json:"station,omitempty"`
	MediaType string       `json:"mediaType,omitempty"`
}

// Name of the guest here.
func (e *GuestEntry) Name() string { return GuestName(e.Origin, e.Instrument) }

// The settings of a guest's instrument here: no data is due from it, since its origin reports what is missing, and a receipt comes when
// an object is stored, since the puller can pull again.
const (
	guestMaxObjectSize  = 5 << 40 // S3's own
	guestMaxConnections = 1024
	guestAcknowledge    = "Stored"
	guestPackBelow      = 64 << 10 // the default of Instruments; gateways pack nothing of it, compaction does
)

// Entry is the guest as an instrument of the registry.
func (e *GuestEntry) Entry() InstrumentEntry {
	in := InstrumentEntry{
		UID: e.Name(), Generation: e.generation(), Instrument: e.Name(), Origin: e.Origin, Maintenance: true,
		MaxObjectSize: guestMaxObjectSize, MaxConnections: guestMaxConnections, Acknowledge: guestAcknowledge, PackBelow: guestPackBelow,
		MediaType: e.MediaType, Station: e.Station, Rights: e.Rights, About: e.About,
	}
	if e.Access != nil {
		access := *e.Access
		access.Readers = nil // they are the origin's
		in.Access = &access
	}
	return in
}

// generation is another where the origin says something else.
func (e *GuestEntry) generation() int64 {
	said := *e
	said.Partner, said.SaidAt = "", time.Time{}
	text, _ := json.Marshal(said) // texts and numbers, which can always be written
	sum := sha256.Sum256(text)
	return int64(binary.BigEndian.Uint64(sum[:8]) >> 1)
}

const registryMover = "mover."

// RegistryMoverKey is where a run of a partner says what it shows to gateways. Kind is as in MirrorLease.
func RegistryMoverKey(partner, kind string) string { return registryMover + partner + "." + kind }

// ParseRegistryMoverKey returns the partner and the kind of run that a key names, and false for other keys.
func ParseRegistryMoverKey(key string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(key, registryMover)
	partner, kind, both := strings.Cut(rest, ".")
	return rest, ok && both && partner != "" && kind != ""
}

// RegistryOfOperator are the keys of the registry that the operator writes, as subjects. The runs of mirrors write all others, and
// the archivist those of guests that were lost.
func RegistryOfOperator() []string {
	keys := []string{RegistryCompleteKey}
	for _, kind := range []string{registryInstrument, registryFeed, registryConsumer, registryReader, registryClosed, registryMirror} {
		keys = append(keys, kind+">")
	}
	return keys
}

// MoverEntry is a run of a partner as gateways know it. It stands while the run lasts.
type MoverEntry struct {
	Partner string `json:"partner"`
	Kind    string `json:"kind"`
	// Certificate is the SHA-256 of the certificate (DER) that the run shows. Its key leaves the process at no time.
	Certificate Digest `json:"certificate"`
}

func (e *MoverEntry) check() error {
	if e.Partner == "" || e.Kind == "" || e.Certificate == (Digest{}) {
		return fmt.Errorf("mover lacks partner (%q), kind (%q) or certificate: %w", e.Partner, e.Kind, ErrMalformed)
	}
	return nil
}
