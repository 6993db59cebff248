// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// MediaTypePack is the media type of a pack: a tar as POSIX.1-2001 (pax) says.
const MediaTypePack = "application/x-tar"

// Names of a member's PAX records. Together with its place in the pack they say
// everything that a manifest entry says, so that manifests can be rebuilt from
// the bucket alone.
const (
	PaxFormat = "SUBSTORM.format"
	PaxRecord = "SUBSTORM.record"
)

// PacksPrefix is what all packs of a Site begin with.
func PacksPrefix(site string) string { return "packs/" + site + "/" }

// PackPrefix is what all packs of a Site and day begin with.
func PackPrefix(site string, day Day) string { return PacksPrefix(site) + day.path() + "/" }

// PackKey is packs/<site>/<yyyy>/<mm>/<dd>/<13-digit ms>-<writer>-<incarnation>-<n>.tar:
// when its first member was received, and the pack's number in one incarnation of a
// gateway. All members are of that day. A compacted pack's writer is
// ArchivistWriter, and its incarnation is made of what it holds.
func PackKey(site string, first time.Time, writer, incarnation string, number uint64) string {
	return fmt.Sprintf("%s%013d-%s-%s-%d.tar", PackPrefix(site, DayOf(first)), first.UnixMilli(), writer, incarnation, number)
}

// PackFile is what the key of a pack says.
type PackFile struct {
	Site string
	Day  Day
	// First is when the first member was received, in milliseconds.
	First               time.Time
	Writer, Incarnation string
	Number              uint64
}

// Compacted says whether the pack holds a closed day's objects of one instrument.
func (p PackFile) Compacted() bool { return p.Writer == ArchivistWriter }

var packKey = regexp.MustCompile(`^packs/([a-z0-9-]+)/(\d{4})/(\d{2})/(\d{2})/(\d{13})-([a-z0-9_-]+)-([0-9a-zA-Z]+)-([1-9]\d{0,18})\.tar$`)

// ParsePackKey reads the key of a pack. Errors: ErrMalformed.
func ParsePackKey(key string) (PackFile, error) {
	m := packKey.FindStringSubmatch(key)
	if m == nil {
		return PackFile{}, fmt.Errorf("key %q is not a pack: %w", key, ErrMalformed)
	}
	day, err := ParseDay(m[2] + "-" + m[3] + "-" + m[4])
	if err != nil {
		return PackFile{}, fmt.Errorf("key %q: %w", key, err)
	}
	ms, err1 := strconv.ParseInt(m[5], 10, 64)
	number, err2 := strconv.ParseUint(m[8], 10, 64)
	if err1 != nil || err2 != nil {
		return PackFile{}, fmt.Errorf("key %q: %w", key, ErrMalformed)
	}
	first := time.UnixMilli(ms).UTC()
	if day != DayOf(first) {
		return PackFile{}, fmt.Errorf("key %q: its first member is of %s: %w", key, DayOf(first), ErrMalformed)
	}
	return PackFile{Site: m[1], Day: day, First: first, Writer: m[6], Incarnation: m[7], Number: number}, nil
}

// MemberID is the ID of the member of a pack whose bytes begin at offset.
func MemberID(packKey string, offset int64) string {
	return packKey + "#" + strconv.FormatInt(offset, 10)
}

// SpooledID is the ID of an object that waits in a spool for a pack: the key that
// it would have by itself, and who received it when. A gateway that drains it
// twice, from a copy or after a kill, gives it the same ID, and no other object has
// it: a gateway tells no nanosecond twice.
func SpooledID(n Notice) string {
	return fmt.Sprintf("%s-%s-%s-%06d", RawKey(n.Site, n.Instrument, n.ReceivedAt, n.Digest), n.Gateway, n.Incarnation, n.ReceivedAt.Nanosecond()%1e6)
}

// OrphanID is the ID under which a duplicate is listed as an object of its own, because its
// original is gone: a line that says Duplicate holds for good, so it gets an ID that differs
// from its own and from SpooledID, which is the duplicate's own where it waited in a spool.
// It is the same whenever it is made. If n has such an ID already, it is the next one.
func OrphanID(n Notice) string {
	prefix, number := SpooledID(n)+"-orphan-", 1
	if last, isOrphan := strings.CutPrefix(n.ID, prefix); isOrphan {
		if i, err := strconv.Atoi(last); err == nil {
			number = i + 1
		}
	}
	return prefix + strconv.Itoa(number)
}

// IsOrphanID says whether OrphanID made an ID.
func IsOrphanID(id string) bool { return orphanID.MatchString(id) }

var orphanID = regexp.MustCompile(`-orphan-[0-9]+$`)

// InPack says whether the record's bytes are part of a pack.
func (r *Record) InPack() bool { return r.Length > 0 }

// DayOfID returns the day that an object's ID names, and false for IDs that name
// none, as those of objects with a name.
func DayOfID(id string) (Day, bool) {
	key, packed := KeyOfID(id)
	if !packed {
		return DayOfKey(key)
	}
	pack, err := ParsePackKey(key)
	return pack.Day, err == nil
}

// memberRecord is a Record without what the place in the pack says. The ID is
// there where the member had another place before.
type memberRecord struct {
	ID     string `json:"id,omitempty"`
	Key    string `json:"key,omitempty"`
	Offset int64  `json:"offset,omitempty"`
	Length int64  `json:"length,omitempty"`
	Size   int64  `json:"size,omitempty"`
	*Record
}

// MemberName is what a member is called in its pack: the key that it has, or
// would have, as an object of its own.
func MemberName(n Notice) string {
	if _, packed := KeyOfID(n.ID); n.ID != "" && !packed {
		return n.ID
	}
	if n.Name != "" {
		return NamedKey(n.Site, n.Instrument, n.Name, 1)
	}
	return RawKey(n.Site, n.Instrument, n.ReceivedAt, n.Digest)
}

// MemberPax returns the PAX records of a member. It does not use the notice's place, and
// of the ID only whether it is empty: then it follows from the place.
func MemberPax(n Notice) (map[string]string, error) {
	record, err := json.Marshal(memberRecord{ID: n.ID, Record: &n.Record})
	if err != nil {
		return nil, err
	}
	return map[string]string{PaxFormat: strconv.Itoa(Format), PaxRecord: string(record)}, nil
}

// NoticeOfMember rebuilds the notice of a member from its place in a pack, its
// name and its PAX records. Errors: ErrMalformed, ErrNewerFormat.
func NoticeOfMember(packKey, name string, offset, size int64, pax map[string]string) (Notice, error) {
	id := MemberID(packKey, offset)
	format, err := strconv.Atoi(pax[PaxFormat])
	if err != nil {
		return Notice{}, fmt.Errorf("member %s: %s %q: %w", id, PaxFormat, pax[PaxFormat], ErrMalformed)
	}
	if err := CheckFormat(format); err != nil {
		return Notice{}, fmt.Errorf("member %s: %w", id, err)
	}
	site, instrument, err := InstrumentOfKey(name)
	if err != nil {
		return Notice{}, fmt.Errorf("member %s: %w", id, err)
	}
	n := Notice{Site: site, Instrument: instrument}
	m := memberRecord{Record: &n.Record}
	if err := json.Unmarshal([]byte(pax[PaxRecord]), &m); err != nil || m.Record == nil {
		return Notice{}, fmt.Errorf("member %s: %s: %w: %v", id, PaxRecord, ErrMalformed, err)
	}
	n.Record = *m.Record
	n.ID, n.Key, n.Offset, n.Length, n.Size = id, packKey, offset, size, size
	if m.ID != "" {
		n.ID = m.ID
	}
	if err := n.check(); err != nil {
		return Notice{}, fmt.Errorf("member %s: %w", id, err)
	}
	if !strings.HasPrefix(packKey, PacksPrefix(site)) || DayOf(n.ReceivedAt) != packDay(packKey) {
		return Notice{}, fmt.Errorf("member %s is called %s and was received at %s: %w", id, name, FormatTime(n.ReceivedAt), ErrMalformed)
	}
	return n, nil
}

func packDay(key string) Day {
	p, err := ParsePackKey(key)
	if err != nil {
		return ""
	}
	return p.Day
}
