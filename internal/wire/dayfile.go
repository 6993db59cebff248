// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"time"
)

// DayKind says which key-value bucket the day in a DayFile is from. It is also the first part of the file's key.
type DayKind string

// The kinds. KindLedger: entries of LedgerBucket. KindGaps: entries of GapsBucket.
const (
	KindLedger DayKind = "ledger"
	KindGaps   DayKind = "gaps"
)

// DayOfEntry returns the day that a key of the kind's bucket speaks of. Errors:
// ErrMalformed, where it is no such key.
func (k DayKind) DayOfEntry(key string) (Day, error) {
	if k == KindGaps {
		_, day, err := ParseGapsKey(key)
		return day, err
	}
	_, day, _, _, err := ParseLedgerKey(key)
	return day, err
}

// EntriesOf matches the keys of the kind's bucket that speak of a day.
func (k DayKind) EntriesOf(day Day) string {
	if k == KindGaps {
		return GapsKey("*", day)
	}
	return LedgerKey("*", day, "*", "*")
}

// DayFilesPrefix is what all files of a kind begin with, by day.
func DayFilesPrefix(kind DayKind, site string) string { return string(kind) + "/" + site + "/" }

// DayFilePrefix is what all files of a kind and day begin with.
func DayFilePrefix(kind DayKind, site string, day Day) string {
	return DayFilesPrefix(kind, site) + string(day) + "/"
}

// DayFileKey is the key of a version of a day, counted from 1.
func DayFileKey(kind DayKind, site string, day Day, version int) string {
	return fmt.Sprintf("%sv-%d.jsonl.zst", DayFilePrefix(kind, site, day), version)
}

var dayFileKey = regexp.MustCompile(`^(ledger|gaps)/([a-z0-9-]+)/(\d{4}-\d{2}-\d{2})/v-([1-9]\d{0,8})\.jsonl\.zst$`)

// ParseDayFileKey reads what DayFileKey wrote. Errors: ErrMalformed.
func ParseDayFileKey(key string) (kind DayKind, site string, day Day, version int, err error) {
	m := dayFileKey.FindStringSubmatch(key)
	if m == nil {
		return "", "", "", 0, fmt.Errorf("key %q is not a closed day: %w", key, ErrMalformed)
	}
	if day, err = ParseDay(m[3]); err == nil {
		version, err = strconv.Atoi(m[4])
	}
	return DayKind(m[1]), m[2], day, version, err
}

// DayFileHeader is the first line of a DayFile.
type DayFileHeader struct {
	Format int     `json:"format"`
	Kind   DayKind `json:"kind"`
	Site   string  `json:"site"`
	Day    Day     `json:"day"`
	// Version of the day, counted from 1. A later one stands for all before: the day
	// was opened again by what came late.
	Version  int       `json:"version"`
	ClosedAt time.Time `json:"closedAt"`
	// Entries that follow.
	Entries int `json:"entries"`
	// Writer and Incarnation wrote the file.
	Writer      string `json:"writer"`
	Incarnation string `json:"incarnation"`
}

// DayEntry is an entry of a key-value bucket.
type DayEntry struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
}

// DayFile is a closed day as the bucket keeps it: JSON lines, a header and a line an
// entry, by key, compressed with zstd.
type DayFile struct {
	Header  DayFileHeader
	Entries []DayEntry
}

// Encode writes the file. The header's count is computed.
func (f DayFile) Encode() ([]byte, error) {
	f.Header.Format, f.Header.Entries = Format, len(f.Entries)
	return encodeLines(f.Header, f.Entries, false) // values stay as they are
}

// maxDayFile bounds what DecodeDayFile unpacks, in bytes.
const maxDayFile = 1 << 30

// DecodeDayFile reads a closed day. Errors: ErrMalformed, ErrNewerFormat, and those
// of r, which say nothing about the file.
func DecodeDayFile(r io.Reader) (DayFile, error) {
	return decodeLines(r, "closed day", maxDayFile, readDayFile)
}

func readDayFile(r io.Reader) (f DayFile, err error) {
	lines := json.NewDecoder(r)
	if f.Header, err = decodeHeader[DayFileHeader](lines, "closed day"); err != nil {
		return DayFile{}, err
	}
	for {
		var e DayEntry
		err := lines.Decode(&e)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			_, err = f.Header.Kind.DayOfEntry(e.Key)
		}
		if err != nil {
			return DayFile{}, fmt.Errorf("closed day: entry %d: %w: %v", len(f.Entries)+1, ErrMalformed, err)
		}
		f.Entries = append(f.Entries, e)
	}
	if len(f.Entries) != f.Header.Entries {
		return DayFile{}, fmt.Errorf("closed day: header counts %d entries, %d follow: %w", f.Header.Entries, len(f.Entries), ErrMalformed)
	}
	return f, nil
}
