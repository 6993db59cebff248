// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// IndexBucket holds which days an instrument's archive has: an IndexEntry under the
// instrument's name, and a StreamCursor under IndexListedKey.
func IndexBucket(site string) string { return "INDEX_" + site }

// IndexListedKey is the key of the place in the notice stream up to which all is in
// closed parts that the entries know. No instrument has that name. If it is not there,
// the entries are not complete yet.
const IndexListedKey = "_listed"

// IndexEntry says which manifests of an instrument are in effect. All days are in
// the root, and Open are those that changed since it was written.
type IndexEntry struct {
	// Root is the number of the newest root; 0 if there is none yet.
	Root int `json:"root,omitempty"`
	// RootIncarnation is the incarnation of the root's writer, which gives a number to one root only: a restored archive counts on from
	// an older number, and another incarnation writes its roots.
	RootIncarnation string `json:"rootIncarnation,omitempty"`
	// Open days, ascending.
	Open []RootDay `json:"open,omitempty"`
	// LatestObserved is the greatest observation time that any day ever held.
	LatestObserved *time.Time `json:"latestObserved,omitempty"`
}

func (e *IndexEntry) check() error {
	if e.Root < 0 {
		return fmt.Errorf("index: root %d: %w", e.Root, ErrMalformed)
	}
	return checkDays(e.Open)
}

// RootDay sums up the manifest of one day: what its files in effect say together.
type RootDay struct {
	Day Day `json:"day"`
	// Version of the compacted day in effect; 0 if there is none. Digest is the SHA-256 of that file.
	Version int     `json:"version,omitempty"`
	Digest  *Digest `json:"sha256,omitempty"`
	// Parts are the numbers of the parts in effect behind the version.
	Parts PartNumbers `json:"parts,omitempty"`
	// Files is the sum of the digests of keys and sizes of the files in effect. A number says which file it
	// is only within one bucket: a copy of a Site, or a day whose manifest was lost, gets other files under
	// the same numbers. If it is absent, two summaries are compared by their numbers alone.
	Files *Digest `json:"files,omitempty"`
	// Entries are the lines of objects, without those that change one, and Duplicates the
	// lines of duplicates; Bytes are those of the objects. An object that a part lists and
	// a later one marks as a duplicate is counted until the day is compacted; the bytes of
	// purged objects are not.
	Entries    int   `json:"entries"`
	Duplicates int   `json:"duplicates,omitempty"`
	Bytes      int64 `json:"bytes"`
	// ForeignBytes are those of them that lie where others write: no retention removes them.
	ForeignBytes int64 `json:"foreignBytes,omitempty"`
	// ObservedFrom and ObservedTo are the least and greatest observation time (Record.ObservedSpan).
	ObservedFrom *time.Time `json:"observedFrom,omitempty"`
	ObservedTo   *time.Time `json:"observedTo,omitempty"`
	// Dirs are the folders of the published paths, in order, "" being the uppermost; at
	// most MaxDirs, and MaxDirBytes together. If there are more, each is cut to the depth
	// at which there are not, and Deeper is set.
	Dirs   []string `json:"dirs,omitempty"`
	Deeper bool     `json:"deeper,omitempty"`
	// FirstPath and LastPath are the least and the greatest published path.
	FirstPath string `json:"firstPath,omitempty"`
	LastPath  string `json:"lastPath,omitempty"`
}

// Observed returns a time before which nothing of the day was observed, and one after
// which nothing was. An object without an observation time counts as observed when it was
// received, at any time of the day. Errors: ErrMalformed, of Day.
func (d RootDay) Observed() (from, to time.Time, err error) {
	if from, err = d.Day.Start(); err != nil {
		return from, to, err
	}
	to = from.AddDate(0, 0, 1)
	for _, t := range []*time.Time{d.ObservedFrom, d.ObservedTo} {
		if t != nil && t.Before(from) {
			from = *t
		}
		if t != nil && t.After(to) {
			to = *t
		}
	}
	return from, to, nil
}

// MaxDirs and MaxDirBytes bound the folders that a RootDay names.
const (
	MaxDirs     = 512
	MaxDirBytes = 64 << 10
)

// Same says whether two summaries are of the same files.
func (d RootDay) Same(other RootDay) bool {
	return d.Day == other.Day && d.Version == other.Version && slices.Equal(d.Parts, other.Parts) &&
		(d.Files == nil || other.Files == nil || *d.Files == *other.Files)
}

// AddFile adds a file, by its key and its size in bytes, to Files.
func (d *RootDay) AddFile(key string, size int64) {
	sum := Digest(sha256.Sum256(fmt.Appendf(nil, "%s %d", key, size)))
	if d.Files != nil {
		sum = sum.Plus(*d.Files)
	}
	d.Files = &sum
}

// Keys returns the keys of the day's files in effect, in the order in which they
// are read.
func (d RootDay) Keys(site, instrument string) []string {
	var keys []string
	if d.Version > 0 {
		keys = append(keys, ManifestVersionKey(site, instrument, d.Day, d.Version))
	}
	for _, r := range d.Parts {
		for n := r[0]; n <= r[1]; n++ {
			keys = append(keys, ManifestPartKey(site, instrument, d.Day, n))
		}
	}
	return keys
}

// maxParts bounds the parts of one day: one a minute makes 1440.
const maxParts = 1 << 20

// PartNumbers are numbers of parts, as ranges from a first to a last, ascending and
// apart from each other.
type PartNumbers [][2]int

// Has says whether a number is among them.
func (p PartNumbers) Has(number int) bool {
	return slices.ContainsFunc(p, func(r [2]int) bool { return r[0] <= number && number <= r[1] })
}

// Count returns how many there are.
func (p PartNumbers) Count() int {
	count := 0
	for _, r := range p {
		count += r[1] - r[0] + 1
	}
	return count
}

// Add returns the numbers with one more, which may be among them.
func (p PartNumbers) Add(number int) PartNumbers {
	if p.Has(number) {
		return p
	}
	i := 0
	for i < len(p) && p[i][1] < number {
		i++
	}
	all := slices.Insert(slices.Clone(p), i, [2]int{number, number})
	if i+1 < len(all) && all[i+1][0] == number+1 {
		all[i][1] = all[i+1][1]
		all = slices.Delete(all, i+1, i+2)
	}
	if i > 0 && all[i-1][1] == number-1 {
		all[i-1][1] = all[i][1]
		all = slices.Delete(all, i, i+1)
	}
	return all
}

func checkDays(days []RootDay) error {
	var last Day
	for _, d := range days {
		if _, err := ParseDay(string(d.Day)); err != nil {
			return fmt.Errorf("index: %w", err)
		}
		if d.Day <= last {
			return fmt.Errorf("index: day %s is listed after %s: %w", d.Day, last, ErrMalformed)
		}
		last = d.Day
		if d.Version < 0 || d.Entries < 0 || d.Duplicates < 0 || d.Bytes < 0 {
			return fmt.Errorf("index: day %s has a negative number: %w", d.Day, ErrMalformed)
		}
		before, count := 0, 0
		for _, r := range d.Parts {
			if r[0] <= before || r[1] < r[0] || r[1]-r[0] >= maxParts {
				return fmt.Errorf("index: day %s: parts %v: %w", d.Day, d.Parts, ErrMalformed)
			}
			before = r[1]
			count += r[1] - r[0] + 1
		}
		if count > maxParts {
			return fmt.Errorf("index: day %s has %d parts: %w", d.Day, count, ErrMalformed)
		}
	}
	return nil
}

// RootPrefix is what the roots of an instrument begin with. They lie beside its
// days, and not in a folder, which would look like a day.
func RootPrefix(site, instrument string) string {
	return ManifestInstrumentPrefix(site, instrument) + "r-"
}

// RootKey is the key of a root, numbered from 1.
func RootKey(site, instrument string, number int) string {
	return fmt.Sprintf("%s%d.jsonl.zst", RootPrefix(site, instrument), number)
}

var rootKey = regexp.MustCompile(`^manifest/([a-z0-9-]+)/([a-z0-9_-]+)/r-([1-9]\d{0,8})\.jsonl\.zst$`)

// ParseRootKey reads the key of a root. Errors: ErrMalformed.
func ParseRootKey(key string) (site, instrument string, number int, err error) {
	m := rootKey.FindStringSubmatch(key)
	if m == nil {
		return "", "", 0, fmt.Errorf("key %q is not a root: %w", key, ErrMalformed)
	}
	if number, err = strconv.Atoi(m[3]); err != nil {
		return "", "", 0, fmt.Errorf("key %q: %w", key, ErrMalformed)
	}
	return m[1], m[2], number, nil
}

// RootHeader is the first line of a root.
type RootHeader struct {
	Format     int    `json:"format"`
	Site       string `json:"site"`
	Instrument string `json:"instrument"`
	Number     int    `json:"number"`
	// Days that follow.
	Days int `json:"days"`
	// Writer and Incarnation wrote the root.
	Writer      string `json:"writer"`
	Incarnation string `json:"incarnation"`
}

// Root lists the days of an instrument's archive: JSON lines, a header and a line a day, ascending, compressed with zstd. It holds
// nothing that the manifests do not.
type Root struct {
	Header RootHeader
	Days   []RootDay
}

// Encode writes the root. The header's count is computed.
func (r Root) Encode() ([]byte, error) {
	r.Header.Format, r.Header.Days = Format, len(r.Days)
	return encodeLines(r.Header, r.Days, true)
}

// maxRootDays bounds what DecodeRoot accepts: days of more than 250 years.
const maxRootDays = 100_000

// DecodeRoot reads a root. Errors: ErrMalformed, ErrNewerFormat, and those of r,
// which say nothing about the root.
func DecodeRoot(r io.Reader) (Root, error) {
	return decodeLines(r, "root", math.MaxInt64, readRoot) // readRoot bounds lines and days
}

func readRoot(r io.Reader) (Root, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4<<10), maxManifestLine)
	if !lines.Scan() {
		return Root{}, fmt.Errorf("root: it has no header (%v): %w", lines.Err(), ErrMalformed)
	}
	var root Root
	var err error
	if root.Header, err = Decode[RootHeader](lines.Bytes()); err != nil {
		return Root{}, err
	}
	if n := root.Header.Days; n < 0 || n > maxRootDays {
		return Root{}, fmt.Errorf("root: header counts %d days: %w", n, ErrMalformed)
	}
	for lines.Scan() {
		var d RootDay
		if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
			return Root{}, fmt.Errorf("root: day %d: %w: %v", len(root.Days)+1, ErrMalformed, err)
		}
		if root.Days = append(root.Days, d); len(root.Days) > root.Header.Days {
			return Root{}, fmt.Errorf("root: header counts %d days, more follow: %w", root.Header.Days, ErrMalformed)
		}
	}
	if err := lines.Err(); err != nil {
		return Root{}, fmt.Errorf("root: %w: %v", ErrMalformed, err)
	}
	if len(root.Days) != root.Header.Days {
		return Root{}, fmt.Errorf("root: header counts %d days, %d follow: %w", root.Header.Days, len(root.Days), ErrMalformed)
	}
	return root, checkDays(root.Days)
}
