// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Entry is an object in the queue.
type Entry struct {
	// Millis is when it was observed, according to its file, in milliseconds since 1970.
	Millis int64
	// Number distinguishes entries of one time; it grows.
	Number uint32
	// Check is the beginning of its SHA-256.
	Check uint64
	// Size in bytes.
	Size int64
	// Name is where it came from, shortened to what file systems take.
	Name string
}

// Time is when it was observed.
func (e Entry) Time() time.Time { return time.UnixMilli(e.Millis) }

// Before is the order of time.
func (e Entry) Before(other Entry) bool {
	if e.Millis != other.Millis {
		return e.Millis < other.Millis
	}
	return e.Number < other.Number
}

// Matches reports whether a digest is the digest of the queued object.
func (e Entry) Matches(digest [sha256.Size]byte) bool { return checkOf(digest) == e.Check }

func checkOf(digest [sha256.Size]byte) uint64 { return binary.BigEndian.Uint64(digest[:8]) }

// Greatest values that fit an entry's file name. Names are shortened so that the
// whole stays below the 255 bytes that most file systems take.
const (
	maxMillis = 9_999_999_999_999
	// MaxName is how long an entry's name may be, in bytes.
	MaxName = 180
)

// File is the entry's name on disk.
func (e Entry) File() string {
	return fmt.Sprintf("%013d-%08x-%016x-%s", e.Millis, e.Number, e.Check, e.Name)
}

var entryName = regexp.MustCompile(`^([0-9]{13})-([0-9a-f]{8})-([0-9a-f]{16})-([^/\\]+)$`)

// ParseFile reads what File wrote. Size is not in the name. It returns false for
// every other name.
func ParseFile(file string) (Entry, bool) {
	m := entryName.FindStringSubmatch(file)
	if m == nil || cleanName(m[4]) != m[4] {
		return Entry{}, false
	}
	millis, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return Entry{}, false
	}
	number, err := strconv.ParseUint(m[2], 16, 32)
	if err != nil {
		return Entry{}, false
	}
	check, err := strconv.ParseUint(m[3], 16, 64)
	if err != nil {
		return Entry{}, false
	}
	return Entry{Millis: millis, Number: uint32(number), Check: check, Name: m[4]}, true
}

// cleanName makes a name that every file system takes, Windows' included.
func cleanName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError || strings.ContainsRune(`/\:*?"<>|`, r) {
			return '_'
		}
		return r
	}, name)
	if len(name) > MaxName { // the end has the type
		name = name[len(name)-MaxName:]
		for !utf8.RuneStart(name[0]) {
			name = name[1:]
		}
	}
	if end := strings.TrimRight(name, ". "); len(end) < len(name) || end == "" { // Windows drops them
		name = end + "_"
	}
	return name
}

func clampMillis(t time.Time) int64 { return min(max(t.UnixMilli(), 0), maxMillis) }
