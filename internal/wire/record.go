// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// State of an object in the archive.
type State string

// The values of State. Duplicate: the object was a duplicate, and DuplicateOf names the one
// that stays; readers never see it.
const (
	StateCurrent    State = "Current"
	StateSuperseded State = "Superseded"
	StateRetracted  State = "Retracted"
	StatePurged     State = "Purged"
	StateDuplicate  State = "Duplicate"
	// StateExpired is an Outcome: manifests and notices have StatePurged by ByRetention.
	StateExpired State = "Expired"
)

// Changes says whether a record replaces an earlier one of the same ID, as a new line
// of a manifest does.
func (r *Record) Changes() bool {
	switch r.State {
	case StateSuperseded, StateRetracted, StatePurged:
		return true
	default:
		return r.RestoredAt != nil
	}
}

// IsChange says whether a record retracts, restores or purges an object that was
// announced before.
func (r *Record) IsChange() bool {
	return r.State == StateRetracted || r.State == StatePurged || r.RestoredAt != nil
}

// ChangedAt is when the object was last retracted, restored or purged; zero where
// that never was.
func (r *Record) ChangedAt() time.Time {
	var last time.Time
	for _, at := range []*time.Time{r.RetractedAt, r.RestoredAt, r.PurgedAt} {
		if at != nil && at.After(last) {
			last = *at
		}
	}
	return last
}

// IsLate says whether what came at an instant came later than lateAfter after the end of
// its observation. If no observation time is known, its receipt stands for it, so that
// what a gateway received then is not late.
func (r *Record) IsLate(came time.Time, lateAfter time.Duration) bool {
	return came.Sub(r.When()) > lateAfter
}

// ByReceipt orders records as they were received; of two at one instant the ID decides.
func ByReceipt(a, b *Record) int {
	return cmp.Or(a.ReceivedAt.Compare(b.ReceivedAt), cmp.Compare(a.ID, b.ID))
}

// TimeSource says where an object's observation time comes from.
type TimeSource string

// The values of TimeSource. Received: no observation time is known, receivedAt
// stands for it. Name: the object's name tells it, as exactly as its template.
// Payload: what is in it tells it, as the Instrument's channels declare.
const (
	TimeSourceReceived TimeSource = "Received"
	TimeSourceName     TimeSource = "Name"
	TimeSourcePayload  TimeSource = "Payload"
)

func (s TimeSource) known() bool {
	return s == TimeSourceReceived || s == TimeSourceName || s == TimeSourcePayload
}

// DigestSource says what attests that the digest is the digest of the bytes; empty: one of our programs computed it from them.
type DigestSource string

// DigestSourceListed: the digest is from a list of checksums that came with the object, and was not computed.
const DigestSourceListed DigestSource = "Listed"

// Completeness says whether an object is known to be whole.
type Completeness string

// The values of Completeness. Unverified: a close or a pause ended the object, as
// a dead sender does too, or it is not what the Instrument expects, or it is a file
// that was pulled, imported or adopted, and may not have been written to its end.
const (
	CompletenessVerified   Completeness = "Verified"
	CompletenessUnverified Completeness = "Unverified"
)

// Record describes one stored object. Notices, manifest entries and object
// metadata carry it.
type Record struct {
	// ID is the ce-id: the object's key; for a member of a pack the pack's key,
	// "#" and the offset, or what SpooledID or OrphanID says.
	ID string `json:"id"`
	// Key of the object in the bucket, or of the pack that holds it.
	Key string `json:"key"`
	// Offset and length inside a pack; both zero for an object of its own.
	Offset int64 `json:"offset,omitempty"`
	Length int64 `json:"length,omitempty"`
	// Name that the sender gave, if any.
	Name string `json:"name,omitempty"`
	// Path is where the object is published, as its Instrument's naming says; in
	// a notice it may lack what the manifest's writer adds to tell objects apart,
	// or be empty where only that writer knows it.
	Path string `json:"path,omitempty"`
	// Size in bytes.
	Size int64 `json:"size"`
	// Digest is the SHA-256 of the object.
	Digest       Digest       `json:"sha256"`
	DigestSource DigestSource `json:"digestSource,omitempty"`
	MediaType    string       `json:"mediaType,omitempty"`
	// Looks is the media type that the first bytes look like, if they cannot be of MediaType or of the one that the Instrument declares;
	// empty if they can, or if nothing is known.
	Looks string `json:"looks,omitempty"`
	State State  `json:"state"`
	// DuplicateOf is the ID of the object that this one duplicates (StateDuplicate).
	DuplicateOf string `json:"duplicateOf,omitempty"`
	// StoredAgain says that another line lists the same object, which was received once and stored twice: in a pack whose store answered too
	// late, and out of the spool. The ledger counts what was received, and so not this line.
	StoredAgain bool `json:"storedAgain,omitempty"`
	// Version of the name, from 2 on, and Supersedes the ID of the version before.
	Version    int    `json:"version,omitempty"`
	Supersedes string `json:"supersedes,omitempty"`
	// Outdated says of an object that was retracted or purged that it was not the current
	// version of its name then: what its path gives did not change by that.
	Outdated bool `json:"outdated,omitempty"`
	// Reason says why the object was retracted, restored, purged or corrected, in
	// words for people, and ChangedBy who asked for that.
	Reason    string `json:"reason,omitempty"`
	ChangedBy string `json:"changedBy,omitempty"`
	// RetractedAt is when the object was last retracted, RestoredAt when that was
	// undone, and PurgedAt when it was given up for good (StatePurged). A notice of
	// StateCurrent that has RestoredAt asks for the second.
	RetractedAt *time.Time `json:"retractedAt,omitempty"`
	RestoredAt  *time.Time `json:"restoredAt,omitempty"`
	PurgedAt    *time.Time `json:"purgedAt,omitempty"`

	ObservedFrom *time.Time `json:"observedFrom,omitempty"`
	ObservedTo   *time.Time `json:"observedTo,omitempty"`
	// Doubted is from when to when its name or payload says that it observes, of what of that is not believed
	// (BelievesObserved).
	Doubted *TimeSpan `json:"doubted,omitempty"`
	// ReceivedAt is the gateway's clock at the last byte; of an imported object,
	// when its file or object was last modified.
	ReceivedAt time.Time `json:"receivedAt"`
	// ClockStepMillis is by how much the gateway's clock had been set within the hour
	// before ReceivedAt, and not set back; 0 where it had not. ReceivedAt may be wrong
	// by as much.
	ClockStepMillis int64      `json:"clockStepMillis,omitempty"`
	TimeSource      TimeSource `json:"timeSource"`
	// Backfill: it came later than cadence.lateAfter of its Instrument after it was
	// observed.
	Backfill bool `json:"backfill,omitempty"`

	Completeness Completeness `json:"completeness,omitempty"`
	// Source is the sender's address as host:port; empty for segments. Port is the gateway's port that it came to; 0 if unknown.
	Source string `json:"source,omitempty"`
	Port   uint16 `json:"port,omitempty"`
	// Framing says what stood around the object's bytes on its connection: with
	// FramingLines an LF behind them, with FramingLengthPrefixed their length
	// before them. Empty: nothing.
	Framing string `json:"framing,omitempty"`
	// Gateway and Incarnation received the object.
	Gateway     string `json:"gateway"`
	Incarnation string `json:"incarnation"`
	// BroughtBy is the gateway that stored the object from its copy of Gateway's
	// spool; empty where Gateway did.
	BroughtBy string `json:"broughtBy,omitempty"`

	// Segment is set where the object is a segment.
	Segment *SegmentRange `json:"segment,omitempty"`

	// Origin is set where the object was pulled from another Site, whose gateway received it at ReceivedAt.
	Origin *Origin `json:"origin,omitempty"`
}

// check returns ErrMalformed where a record lacks what every reader needs.
func (r *Record) check() error {
	if r.ID == "" || r.Key == "" || r.State == "" || r.ReceivedAt.IsZero() {
		return fmt.Errorf("record %q lacks id, key, state or receivedAt: %w", r.ID, ErrMalformed)
	}
	if r.Size < 0 || r.Offset < 0 || r.Length < 0 {
		return fmt.Errorf("record %q has a negative size, offset or length: %w", r.ID, ErrMalformed)
	}
	return nil
}

// Published is the path under which the object is published, below its instrument: Path, if it has one. Otherwise it is the key, without
// the prefix of its instrument's keys; for a member of a pack, the key that it would have by itself; for all versions of a name, the key
// of its first version. An object that was imported in place is published under its name.
func (r *Record) Published() string {
	if r.Path != "" {
		return r.Path
	}
	key := r.Key
	if id, packed := KeyOfID(r.ID); r.InPack() {
		switch {
		case !packed:
			key = id
		case r.Name != "":
			return namedFolder + r.Name
		default:
			return rawPath(r.ReceivedAt, r.Digest)
		}
	}
	p := strings.SplitN(key, "/", 4)
	switch {
	case len(p) != 4 || p[0] != "o":
		return cmp.Or(r.Name, key)
	case r.Version > 1 && r.Name != "" && p[3] == versionPath(r.Name, r.Version):
		return namedFolder + r.Name
	default:
		return p[3]
	}
}

// SegmentRange says which telemetry messages a segment holds.
type SegmentRange struct {
	Channel string `json:"channel"`
	// Epoch names the stream, see StreamEpoch.
	Epoch string `json:"epoch"`
	// First and Last are stream sequences, both included.
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	// Messages and Datagrams that the segment holds, and the bytes of the
	// datagrams' payloads.
	Messages      uint64 `json:"messages"`
	Datagrams     uint64 `json:"datagrams"`
	DatagramBytes uint64 `json:"datagramBytes"`
	// Undecodable datagrams of the range are not in the segment: the messages that hold them cannot be read.
	Undecodable uint64 `json:"undecodable,omitempty"`
	// Deleted datagrams of the range are not in the segment: the messages that held them
	// were deleted from the stream before it was cut.
	Deleted uint64 `json:"deleted,omitempty"`
}

// Totals are what a segment adds to the ledger's stored column.
func (s SegmentRange) Totals() Totals {
	t := Totals{Datagrams: s.Datagrams, DatagramBytes: s.DatagramBytes}
	for cause, n := range map[Cause]uint64{CauseUndecodable: s.Undecodable, CauseMessageDeleted: s.Deleted} {
		if n > 0 {
			t.Dropped = plusCounts(t.Dropped, map[Cause]uint64{cause: n})
		}
	}
	return t
}

// StreamEpoch names a stream by the instant of its creation, so that a stream
// that was deleted and made again cannot pass for the old one.
func StreamEpoch(created time.Time) string { return fmt.Sprintf("%x", created.UnixMilli()) }

// Notice is the message that says "this object is stored".
type Notice struct {
	Site       string `json:"site"`
	Instrument string `json:"instrument"`
	Record
}

// Subject is where the notice is published.
func (n Notice) Subject() string {
	if IsGuest(n.Instrument) {
		return MirroredSubject(n.Site, n.Instrument)
	}
	if n.Backfill {
		return BackfillSubject(n.Site, n.Instrument)
	}
	return NoticeSubject(n.Site, n.Instrument)
}

// check returns ErrMalformed where a notice lacks what every reader needs.
func (n *Notice) check() error {
	if n.Site == "" || n.Instrument == "" {
		return fmt.Errorf("notice of %q names no site or instrument: %w", n.ID, ErrMalformed)
	}
	if err := n.Record.check(); err != nil {
		return fmt.Errorf("notice: %w", err)
	}
	return nil
}

// CheckPlace returns ErrMalformed where a notice names what is not its instrument's: an object of
// another one's, or a file of the archive that is no object. A member's pack is of the notice's
// Site and of the day of its receipt, and its ID names no other place in that pack. An imported
// object may lie anywhere that is not ours. The objects of guests, and those alone, have an origin:
// the one in the guest's name.
func (n *Notice) CheckPlace() error {
	if err := n.checkOrigin(); err != nil {
		return err
	}
	id, packed := KeyOfID(n.ID)
	for _, key := range []string{n.Key, id} {
		switch {
		case strings.HasPrefix(key, InstrumentPrefix(n.Site, n.Instrument)):
		case n.InPack() && n.isPack(key):
		case !IsOurs(key) && (n.Gateway == ImportWriter || n.Gateway == AdoptWriter):
		default:
			return fmt.Errorf("%q is not a valid place of an object of instrument %q received at %s: %w", key, n.Instrument, FormatTime(n.ReceivedAt), ErrMalformed)
		}
	}
	if packed && id == n.Key && n.ID != MemberID(n.Key, n.Offset) {
		return fmt.Errorf("%q is not the member at %d of its pack: %w", n.ID, n.Offset, ErrMalformed)
	}
	return nil
}

// checkOrigin returns ErrMalformed where an object has another origin than its instrument: those of guests have the Site in
// the guest's name, and all others none.
func (n *Notice) checkOrigin() error {
	site, _, isGuest := ParseGuestName(n.Instrument)
	switch {
	case !isGuest && n.Origin == nil:
		return nil
	case isGuest && n.Origin != nil && n.Origin.Site == site && n.Origin.ID != "":
		return nil
	default:
		return fmt.Errorf("the origin of %q does not match that of its instrument %q: %w", n.ID, n.Instrument, ErrMalformed)
	}
}

// isPack says whether a key is the key of a pack of the notice's Site and day.
func (n *Notice) isPack(key string) bool {
	pack, err := ParsePackKey(key)
	return err == nil && pack.Site == n.Site && pack.Day == DayOf(n.ReceivedAt)
}

// MessageID is the notice's ce-id and Nats-Msg-Id: the object's ID, and for a
// notice that changes a state also that state and when, so that it is no duplicate of
// an earlier one.
func (n Notice) MessageID() string {
	at := n.ChangedAt()
	switch {
	case n.State == StateCurrent && n.RestoredAt == nil:
		return n.ID
	case at.IsZero():
		return n.ID + "?state=" + string(n.State)
	default:
		return n.ID + "?state=" + string(n.State) + "&at=" + FormatTime(at)
	}
}
