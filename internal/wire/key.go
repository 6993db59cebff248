// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// SegmentExtension ends the key of a segment: pcapng, see docs/reference/archive-format.md.
const SegmentExtension = "pcapng"

// MediaTypeSegment is the media type of a segment.
const MediaTypeSegment = "application/vnd.tcpdump.pcap"

// SiteMarkerKey is the object that says whose bucket prefix this is.
func SiteMarkerKey(site string) string { return "site/" + site + ".json" }

// RawKey is the key of an object that its sender did not name:
// o/<site>/<instrument>/r/<yyyy>/<mm>/<dd>/<13-digit ms>-<16 hex of digest>.
func RawKey(site, instrument string, receivedAt time.Time, digest Digest) string {
	return InstrumentPrefix(site, instrument) + rawPath(receivedAt, digest)
}

// rawPath is the key of an object without a name behind its instrument's prefix.
func rawPath(receivedAt time.Time, digest Digest) string {
	return rawFolder + DayOf(receivedAt).path() + "/" + ShortID(receivedAt, digest)
}

// Folders of an instrument's objects.
const (
	rawFolder   = "r/"
	namedFolder = "n/"
)

// ShortID is the last part of the key that an object has, or would have, without
// a name: it tells an instrument's objects apart.
func ShortID(receivedAt time.Time, digest Digest) string {
	return fmt.Sprintf("%013d-%s", receivedAt.UnixMilli(), hex.EncodeToString(digest[:8]))
}

// RawPrefix is what all raw objects of an instrument and day begin with.
func RawPrefix(site, instrument string, day Day) string {
	return InstrumentPrefix(site, instrument) + rawFolder + day.path() + "/"
}

// NamedKey is the key of an object that has a name: o/<site>/<instrument>/n/<name>,
// and from version 2 on o/<site>/<instrument>/v/<version>/<name>.
func NamedKey(site, instrument, name string, version int) string {
	if version > 1 {
		return InstrumentPrefix(site, instrument) + versionPath(name, version)
	}
	return InstrumentPrefix(site, instrument) + namedFolder + name
}

// versionPath is the key of a later version of a name behind its instrument's prefix.
func versionPath(name string, version int) string { return "v/" + strconv.Itoa(version) + "/" + name }

// KeyOfID returns the key in an object's ID, and whether it is the key of the pack that holds the object: only IDs of members hold an
// offset, all others are keys.
func KeyOfID(id string) (key string, packed bool) {
	if !strings.HasPrefix(id, "packs/") {
		return id, false
	}
	i := strings.LastIndexByte(id, '#')
	if i < 0 {
		return id, false
	}
	return id[:i], true
}

// IsNamedID says whether the object with an ID has a name that its sender gave.
func IsNamedID(id string) bool {
	p := strings.SplitN(id, "/", 5)
	return len(p) == 5 && p[0] == "o" && (p[3] == "n" || p[3] == "v")
}

// NameOfID returns the name and the version of an object with a name, by its ID; false for
// others.
func NameOfID(id string) (name string, version int, ok bool) {
	p := strings.SplitN(id, "/", 5)
	switch {
	case !IsNamedID(id):
		return "", 0, false
	case p[3] == "n":
		return p[4], 1, true
	}
	number, name, found := strings.Cut(p[4], "/")
	version, err := strconv.Atoi(number)
	return name, version, found && err == nil && version > 1
}

// reserved are the prefixes under which a bucket holds what Substorm wrote.
var reserved = []string{"o/", "packs/", "manifest/", "changes/", "descriptions/", "guests/", "ledger/", "gaps/", "deletions/", "staging/", "site/"}

// IsOurs says whether Substorm alone writes what lies under a key. All else in a
// bucket belongs to others, and is never changed or removed.
func IsOurs(key string) bool {
	return slices.ContainsFunc(reserved, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// MaxKey is how long a key may be, in bytes (Amazon S3).
const MaxKey = 1024

// CheckKey returns ErrMalformed where a key cannot go through S3 and the headers
// of messages unchanged.
func CheckKey(key string) error {
	switch {
	case key == "" || len(key) > MaxKey:
		return fmt.Errorf("key of %d bytes: it must have 1 to %d: %w", len(key), MaxKey, ErrMalformed)
	case !utf8.ValidString(key):
		return fmt.Errorf("key %q is not in UTF-8: %w", key, ErrMalformed)
	case strings.ContainsFunc(key, unicode.IsControl):
		return fmt.Errorf("key %q holds a control character: %w", key, ErrMalformed)
	case strings.TrimSpace(key) != key:
		return fmt.Errorf("key %q begins or ends with a space: %w", key, ErrMalformed)
	}
	return nil
}

// maxNamePart is how long a part of a name may be, in bytes: S3 servers keep
// them as names of files.
const maxNamePart = 255

// CheckName returns ErrMalformed where a name cannot be part of a key.
func CheckName(name string) error {
	if err := CheckKey(name); err != nil {
		return fmt.Errorf("name %q: %w", name, err)
	}
	for part := range strings.SplitSeq(name, "/") {
		if problem := partProblem(part); problem != "" {
			return fmt.Errorf("name %q: %s: %w", name, problem, ErrMalformed)
		}
	}
	return nil
}

// partProblem says why a part of a name cannot be part of a key; empty: it can.
func partProblem(part string) string {
	switch {
	case part == "":
		return "it begins or ends with a slash, or holds two in a row"
	case part == "." || part == "..":
		return fmt.Sprintf("its part %q stands for a folder", part)
	case len(part) > maxNamePart:
		return fmt.Sprintf("its part %.40q… has %d bytes, the limit is %d", part, len(part), maxNamePart)
	case strings.Contains(part, `\`):
		return fmt.Sprintf("its part %q holds a backslash", part)
	default:
		return ""
	}
}

// InstrumentPrefix is what all objects of an instrument begin with.
func InstrumentPrefix(site, instrument string) string { return SitePrefix(site) + instrument + "/" }

// SitePrefix is what all objects of a Site begin with.
func SitePrefix(site string) string { return "o/" + site + "/" }

// SegmentsPrefix is what all segments of an instrument begin with.
func SegmentsPrefix(site, instrument string) string { return InstrumentPrefix(site, instrument) + "s/" }

// SegmentKey is the key of a segment: the messages of one channel with stream
// sequences from first to last, in the stream that epoch names.
func SegmentKey(site, instrument, channel string, day Day, epoch string, first, last uint64) string {
	return fmt.Sprintf("%s%s-%d-%d.%s", SegmentPrefix(site, instrument, channel, day), epoch, first, last, SegmentExtension)
}

// ParseSegmentKey reads what SegmentKey wrote, and returns false for other keys.
func ParseSegmentKey(key string) (s SegmentRange, ok bool) {
	p := strings.Split(key, "/")
	if len(p) != 9 || p[0] != "o" || p[3] != "s" || slices.Contains(p, "") {
		return SegmentRange{}, false
	}
	day, err := ParseDay(p[5] + "-" + p[6] + "-" + p[7])
	name := strings.Split(strings.TrimSuffix(p[8], "."+SegmentExtension), "-")
	if err != nil || len(name) != 3 {
		return SegmentRange{}, false
	}
	first, err1 := strconv.ParseUint(name[1], 10, 64)
	last, err2 := strconv.ParseUint(name[2], 10, 64)
	if err1 != nil || err2 != nil || SegmentKey(p[1], p[2], p[4], day, name[0], first, last) != key {
		return SegmentRange{}, false
	}
	return SegmentRange{Channel: p[4], Epoch: name[0], First: first, Last: last}, true
}

// SegmentPrefix is what all segments of a channel and day begin with.
func SegmentPrefix(site, instrument, channel string, day Day) string {
	return SegmentsPrefix(site, instrument) + channel + "/" + day.path() + "/"
}

// StagingKey is where an object lies whose digest, and so whose key, is not
// known yet. Nothing under staging/ is part of the archive.
func StagingKey(site, instrument, id string) string {
	return StagingPrefix(site) + instrument + "/" + id
}

// StagingPrefix is what all staging keys of a Site begin with.
func StagingPrefix(site string) string { return "staging/" + site + "/" }

// ManifestPrefix is what all manifest parts of an instrument and day begin with.
func ManifestPrefix(site, instrument string, day Day) string {
	return ManifestInstrumentPrefix(site, instrument) + string(day) + "/"
}

// ManifestInstrumentPrefix is what all manifests of an instrument begin with.
func ManifestInstrumentPrefix(site, instrument string) string {
	return ManifestSitePrefix(site) + instrument + "/"
}

// ManifestSitePrefix is what all manifests of a Site begin with.
func ManifestSitePrefix(site string) string { return "manifest/" + site + "/" }

// ManifestPartKey is the key of an open part, numbered from 1.
func ManifestPartKey(site, instrument string, day Day, number int) string {
	return fmt.Sprintf("%sp-%d.jsonl.zst", ManifestPrefix(site, instrument, day), number)
}

// ManifestVersionKey is the key of a compacted day.
func ManifestVersionKey(site, instrument string, day Day, version int) string {
	return fmt.Sprintf("%sv-%d.jsonl.zst", ManifestPrefix(site, instrument, day), version)
}

// ManifestFile is what the key of a part or a compacted day says.
type ManifestFile struct {
	Site, Instrument string
	Day              Day
	Compacted        bool
	Number           int
}

var manifestKey = regexp.MustCompile(`^manifest/([a-z0-9-]+)/([a-z0-9_-]+)/(\d{4}-\d{2}-\d{2})/([pv])-([1-9]\d{0,8})\.jsonl\.zst$`)

// ParseManifestKey reads the key of a part or a compacted day.
func ParseManifestKey(key string) (ManifestFile, error) {
	m := manifestKey.FindStringSubmatch(key)
	if m == nil {
		return ManifestFile{}, fmt.Errorf("key %q is not a manifest: %w", key, ErrMalformed)
	}
	day, err := ParseDay(m[3])
	if err != nil {
		return ManifestFile{}, fmt.Errorf("key %q: %w", key, err)
	}
	n, err := strconv.Atoi(m[5])
	if err != nil {
		return ManifestFile{}, fmt.Errorf("key %q: %w", key, ErrMalformed)
	}
	return ManifestFile{Site: m[1], Instrument: m[2], Day: day, Compacted: m[4] == "v", Number: n}, nil
}

// InstrumentOfKey returns the instrument whose object lies under key, which
// begins with o/<site>/<instrument>/.
func InstrumentOfKey(key string) (site, instrument string, err error) {
	p := strings.SplitN(key, "/", 4)
	if len(p) != 4 || p[0] != "o" || slices.Contains(p, "") {
		return "", "", fmt.Errorf("key %q is not o/<site>/<instrument>/…: %w", key, ErrMalformed)
	}
	return p[1], p[2], nil
}

var dayInKey = regexp.MustCompile(`^o/[^/]+/[^/]+/(?:r|s/[^/]+)/(\d{4})/(\d{2})/(\d{2})/[^/]+$`)

// DayOfKey returns the day in the key of a raw object or a segment, and false
// for other keys.
func DayOfKey(key string) (Day, bool) {
	m := dayInKey.FindStringSubmatch(key)
	if m == nil {
		return "", false
	}
	return Day(m[1] + "-" + m[2] + "-" + m[3]), true
}

var rawKey = regexp.MustCompile(`^o/[^/]+/[^/]+/r/\d{4}/\d{2}/\d{2}/(\d{13})-[0-9a-f]{16}$`)

// ReceivedAtOfKey returns the time in the key of a raw object, in milliseconds,
// and false for other keys.
func ReceivedAtOfKey(key string) (time.Time, bool) {
	m := rawKey.FindStringSubmatch(key)
	if m == nil {
		return time.Time{}, false
	}
	ms, err := strconv.ParseInt(m[1], 10, 64)
	return time.UnixMilli(ms).UTC(), err == nil
}
