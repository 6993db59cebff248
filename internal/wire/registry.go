// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// RegistryCompleteKey holds the RegistryComplete marker of a Site's registry.
const RegistryCompleteKey = "complete"

const registryInstrument = "instrument."

// RegistryInstrumentKey is the key of an instrument's entry.
func RegistryInstrumentKey(instrument string) string { return registryInstrument + instrument }

// ParseRegistryInstrumentKey returns the instrument that a key names, and
// false for other keys.
func ParseRegistryInstrumentKey(key string) (string, bool) {
	instrument, ok := strings.CutPrefix(key, registryInstrument)
	return instrument, ok && instrument != ""
}

// RegistryComplete closes a snapshot of the registry: the bucket holds all of revision Revision, and of each kind so many entries.
// Without it, no program removes anything because of the bucket.
type RegistryComplete struct {
	Revision int64 `json:"revision"`
	// Count of instruments.
	Count     int `json:"count"`
	Feeds     int `json:"feeds,omitempty"`
	Consumers int `json:"consumers,omitempty"`
	Readers   int `json:"readers,omitempty"`
	Mirrors   int `json:"mirrors,omitempty"`
	// LegalHold of the Site: nothing that mirrors have brought in from other Sites is retracted or purged here either, whether or not
	// the MirrorPartner is still declared. Entries of the Site's own instruments say it themselves.
	LegalHold bool `json:"legalHold,omitempty"`
	// Writer is the operator that wrote it, by a name that each process of an operator makes up at its start. An operator that finds
	// another's name where it wrote its own has been replaced.
	Writer string `json:"writer,omitempty"`
}

// Values of InstrumentEntry.Acknowledge with which what was received may be on one gateway alone.
const (
	AcknowledgeStoredOrSpooled = "StoredOrSpooled"
	AcknowledgeSpooled         = "Spooled"
)

// InstrumentEntry is an Instrument as gateways know it. Defaults are filled in.
type InstrumentEntry struct {
	// UID and Generation of the Instrument that the entry was made from.
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	// Revision of the registry in which the entry last changed.
	Revision int64 `json:"revision"`

	Instrument string `json:"instrument"`
	// Origin is the code of the Site that it is an instrument of; empty: of this one. See GuestEntry.
	Origin string `json:"origin,omitempty"`
	// Gateway is the IngestGateway (the pool) that receives; empty if none does.
	Gateway string `json:"gateway"`
	Retired bool   `json:"retired,omitempty"`
	// Maintenance: it sends, or not, and nothing is due.
	Maintenance bool `json:"maintenance,omitempty"`

	Listeners      []ListenerEntry `json:"listeners"`
	MaxObjectSize  int64           `json:"maxObjectSize"`
	MaxConnections int             `json:"maxConnections"`
	Acknowledge    string          `json:"acknowledge"`
	MediaType      string          `json:"mediaType"`
	// Durations are in milliseconds.
	CadenceMillis      int64 `json:"cadenceMillis"`
	LateAfterMillis    int64 `json:"lateAfterMillis,omitempty"`
	RepeatWindowMillis int64 `json:"repeatWindowMillis"`
	SegmentAgeMillis   int64 `json:"segmentAgeMillis"`
	SegmentSize        int64 `json:"segmentSize"`
	// BytesPerSecond and ObjectsPerSecond that each gateway takes; 0 is no limit.
	BytesPerSecond   int64 `json:"bytesPerSecond,omitempty"`
	ObjectsPerSecond int64 `json:"objectsPerSecond,omitempty"`
	// PackBelow is the size in bytes up to which an object may be stored in a
	// pack; 0: each is an object of its own in the store.
	PackBelow int64 `json:"packBelow,omitempty"`
	// Versions is VersionsKeep, or empty where another object under a known name
	// is refused.
	Versions string `json:"versions,omitempty"`

	// Station is what templates call so.
	Station string `json:"station,omitempty"`
	// Naming is the template of the paths under which objects are published, and
	// Aliases are those of further ones; see internal/naming.
	Naming  string   `json:"naming,omitempty"`
	Aliases []string `json:"aliases,omitempty"`
	// ObservationName is the template of the names that senders give, which tell when an
	// object was observed; see internal/naming. Empty: no observation time is known.
	ObservationName string `json:"observationName,omitempty"`
	// Forward is nil where no copy is sent.
	Forward *ForwardEntry `json:"forward,omitempty"`
	// Sampling is nil where the instrument is left to itself.
	Sampling *SamplingEntry `json:"sampling,omitempty"`

	// Access is nil where all is AccessAuthenticated and nothing under embargo.
	Access *AccessEntry `json:"access,omitempty"`
	// Rights is nil if they are not declared.
	Rights *RightsEntry `json:"rights,omitempty"`

	// Retention is nil where all is kept. Under LegalHold nothing is retracted, purged
	// or left to expire.
	Retention *RetentionEntry `json:"retention,omitempty"`
	LegalHold bool            `json:"legalHold,omitempty"`

	// Observes is nil where data is always due.
	Observes *ObservesEntry `json:"observes,omitempty"`

	// Channels whose payloads are declared, and what is published with them; none and nil if nothing is.
	Channels []ChannelEntry `json:"channels,omitempty"`
	About    *AboutEntry    `json:"about,omitempty"`
}

// RepeatWindow is how far apart equal objects are received that are duplicates; 0: none are.
func (e *InstrumentEntry) RepeatWindow() time.Duration {
	return time.Duration(e.RepeatWindowMillis) * time.Millisecond
}

// LateAfter is how long after it was observed what arrives is backfill.
func (e *InstrumentEntry) LateAfter() time.Duration {
	if e.LateAfterMillis > 0 {
		return time.Duration(e.LateAfterMillis) * time.Millisecond
	}
	return max(DefaultLateAfter, 2*time.Duration(e.CadenceMillis)*time.Millisecond)
}

// DefaultLateAfter applies to instruments of a short cadence that declare no such time.
const DefaultLateAfter = 10 * time.Minute

// Values of ObservesEntry.Mode.
const (
	ObservesSunBelow = "SunBelow"
	ObservesDaily    = "Daily"
)

// ObservesEntry says when an instrument observes.
type ObservesEntry struct {
	// Mode is ObservesSunBelow or ObservesDaily.
	Mode string `json:"mode"`
	// SunElevationDegrees, a decimal number, and the place, of ObservesSunBelow.
	SunElevationDegrees string `json:"sunElevationDegrees,omitempty"`
	Latitude            string `json:"latitude,omitempty"`
	Longitude           string `json:"longitude,omitempty"`
	// From and To are times of day in UTC, as 18:00 (ObservesDaily).
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// ForwardEntry says where a copy of what is received is sent.
type ForwardEntry struct {
	// Address is host:port.
	Address string `json:"address"`
	// Protocol is ProtocolTCP for objects, ProtocolUDP for datagrams.
	Protocol string `json:"protocol"`
	// Until: what is received from then on is not forwarded.
	Until time.Time `json:"until"`
}

// Values of ListenerEntry's members, spelled as in the Instrument.
const (
	ProtocolTCP           = "TCP"
	ProtocolUDP           = "UDP"
	ProtocolHTTP          = "HTTP"
	FramingUntilClose     = "UntilClose"
	FramingLines          = "Lines"
	FramingLengthPrefixed = "LengthPrefixed"
	FramingIdle           = "Idle"
	ReceiptLine           = "Line"
	ReceiptClose          = "Close"
	TLSServer             = "Server"
	TLSMutual             = "Mutual"
	VersionsKeep          = "Keep"
)

// ListenerEntry is a listener of an Instrument, as gateways see it.
type ListenerEntry struct {
	// Name of the listener, by which gateways report.
	Name string `json:"name,omitempty"`
	// Protocol is ProtocolTCP, ProtocolUDP or ProtocolHTTP.
	Protocol string `json:"protocol"`
	Port     uint16 `json:"port"`
	// Sources are CIDRs; empty means any address.
	Sources []string `json:"sources,omitempty"`
	// TLS is TLSServer or TLSMutual; empty where bytes are plain.
	TLS string `json:"tls,omitempty"`
	// CertificateNames: the sender's certificate bears one of them; empty: any that the pool's client authorities signed, if TLS is
	// TLSMutual.
	CertificateNames []string `json:"certificateNames,omitempty"`
	// Tokens: the sender presents one of them; empty: it presents none.
	Tokens []TokenHash `json:"tokens,omitempty"`

	// For TCP; the two durations also for HTTP. Framing and Receipt are spelled as in
	// the Instrument.
	Framing           string `json:"framing,omitempty"`
	Receipt           string `json:"receipt,omitempty"`
	IdleTimeoutMillis int64  `json:"idleTimeoutMillis,omitempty"`
	MaxAgeMillis      int64  `json:"maxAgeMillis,omitempty"`
	// IdleAfterMillis ends an object with FramingIdle.
	IdleAfterMillis int64 `json:"idleAfterMillis,omitempty"`
	// Expect is nil if whole objects are not described.
	Expect *ExpectEntry `json:"expect,omitempty"`

	// Channel of UDP.
	Channel string `json:"channel,omitempty"`

	// UploadExpiryMillis of HTTP is how long an unfinished upload is kept.
	UploadExpiryMillis int64 `json:"uploadExpiryMillis,omitempty"`
}

// ExpectEntry says what a whole object looks like; a zero member requires nothing.
type ExpectEntry struct {
	// MinSize in bytes.
	MinSize int64 `json:"minSize,omitempty"`
	// Magic is what an object begins with, Trailer what it ends with: at most 64
	// hexadecimal digits in lower case.
	Magic   string `json:"magic,omitempty"`
	Trailer string `json:"trailer,omitempty"`
}

// TokenHash is a bearer token as gateways know it. A token is long and random,
// so that a fast hash of it cannot be reversed by trying.
type TokenHash struct {
	// Salt is in hexadecimal.
	Salt string `json:"salt"`
	// SHA256 of the salt's bytes and then the token's, in hexadecimal.
	SHA256 string `json:"sha256"`
}

// HashToken returns the hash of a token.
func HashToken(salt []byte, token string) TokenHash {
	sum := sha256.Sum256(append(slices.Clip(salt), token...))
	return TokenHash{Salt: hex.EncodeToString(salt), SHA256: hex.EncodeToString(sum[:])}
}

// NoToken is the hash that no token has: a listener with it alone needs one, and takes
// none.
func NoToken() TokenHash { return TokenHash{SHA256: Digest{}.String()} }

// Matches says whether token is the one that was hashed. It takes as long whatever
// the difference. A hash that cannot be read matches nothing.
func (h TokenHash) Matches(token string) bool {
	salt, err := hex.DecodeString(h.Salt)
	if err != nil || token == "" {
		return false
	}
	got := HashToken(salt, token)
	return subtle.ConstantTimeCompare([]byte(got.SHA256), []byte(h.SHA256)) == 1
}

// Valid says whether the hash can be read.
func (h TokenHash) Valid() bool {
	_, err := hex.DecodeString(h.Salt)
	_, digestErr := ParseDigest(h.SHA256)
	return err == nil && digestErr == nil
}
