// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"time"
)

// Format is the version of records and of the folder.
const Format = 1

// Types of Record.
const (
	// TypeTaken: a file of a watched folder is in the queue, or was.
	TypeTaken = "taken"
	// TypeSpent: so many bytes were sent on a day.
	TypeSpent = "spent"
	// TypeAside: an entry was set aside.
	TypeAside = "aside"
	// TypeVersion: a version of a rewritten file has its name. It is written before the version is taken.
	TypeVersion = "version"
)

// Record is a line of the journal:
//
//	<8 hex digits: CRC-32C of the JSON> <JSON>LF
type Record struct {
	Format int       `json:"format"`
	Type   string    `json:"type"`
	At     time.Time `json:"at"`

	// Key of TypeTaken and TypeVersion: the first 32 hex digits of the SHA-256 of path, size and
	// time of the file. Path of TypeTaken is for people.
	Key  string `json:"key,omitempty"`
	Path string `json:"path,omitempty"`

	// Day of TypeSpent, as 2006-01-02, and bytes that count for it.
	Day   string `json:"day,omitempty"`
	Bytes int64  `json:"bytes,omitempty"`

	// Entry of TypeAside: its folder and file, and why.
	Entry  string `json:"entry,omitempty"`
	Reason string `json:"reason,omitempty"`

	// Version of TypeVersion.
	Version *Version `json:"version,omitempty"`
}

// Version is one of a file that is rewritten under its path.
type Version struct {
	// Name that it has, below the watched folder.
	Name string `json:"name"`
	// Last is the latest time that a name of a version of this path has, this one included.
	Last time.Time `json:"last"`
	// Written is the file's time.
	Written time.Time `json:"written"`
	// Check is the beginning of the SHA-256 of its bytes, as Entry.Check.
	Check uint64 `json:"check,string"`
	// Key distinguishes it from other versions.
	Key Key `json:"-"`
}

// maxRecord is the greatest length of a record, in bytes: twice what a path of
// 4096 bytes needs that JSON writes as six characters each.
const maxRecord = 64 << 10

// Errors of DecodeRecord.
var (
	ErrMalformed   = errors.New("malformed record")
	ErrNewerFormat = errors.New("a newer version of substorm wrote it")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode writes the record as a line, LF included.
func (r Record) Encode() ([]byte, error) {
	r.Format = Format
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	line := seal(text)
	if len(line) > maxRecord {
		return nil, fmt.Errorf("a record of %d bytes: %w", len(line), ErrMalformed)
	}
	return line, nil
}

func seal(text []byte) []byte {
	return fmt.Appendf(make([]byte, 0, len(text)+10), "%08x %s\n", crc32.Checksum(text, castagnoli), text)
}

// DecodeRecord reads a line without its LF.
func DecodeRecord(line []byte) (Record, error) {
	if len(line) < 10 || len(line) > maxRecord || line[8] != ' ' {
		return Record{}, ErrMalformed
	}
	sum, err := strconv.ParseUint(string(line[:8]), 16, 32)
	if err != nil || uint32(sum) != crc32.Checksum(line[9:], castagnoli) {
		return Record{}, fmt.Errorf("checksum: %w", ErrMalformed)
	}
	var r Record
	if err := json.Unmarshal(line[9:], &r); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	switch {
	case r.Format > Format:
		return Record{}, fmt.Errorf("format %d: %w", r.Format, ErrNewerFormat)
	case r.Format < 1:
		return Record{}, fmt.Errorf("format %d: %w", r.Format, ErrMalformed)
	case (r.Type == TypeTaken || r.Type == TypeVersion) && len(r.Key) != hex.EncodedLen(keySize):
		return Record{}, fmt.Errorf("key %q: %w", r.Key, ErrMalformed)
	case r.Type == TypeVersion && r.Version == nil:
		return Record{}, fmt.Errorf("no version: %w", ErrMalformed)
	case r.Type == TypeSpent && r.Bytes < 0:
		return Record{}, fmt.Errorf("%d bytes: %w", r.Bytes, ErrMalformed)
	}
	return r, nil
}

// readRecords calls each for every record that can be read, with its line. It
// returns how many lines cannot, a torn last one not counted: a kill leaves that.
// Error: ErrNewerFormat, or the reader's.
func readRecords(from io.Reader, each func(r Record, line []byte) error) (bad int, err error) {
	in := bufio.NewReaderSize(from, maxRecord)
	tooLong := false
	for {
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			tooLong = true
			continue
		case errors.Is(err, io.EOF):
			return bad, nil
		case err != nil:
			return bad, err
		case tooLong:
			tooLong = false
			bad++
			continue
		}
		r, err := DecodeRecord(bytes.TrimSuffix(line, []byte{'\n'}))
		switch {
		case errors.Is(err, ErrNewerFormat):
			return bad, err
		case err != nil:
			bad++
			continue
		}
		if err := each(r, line); err != nil {
			return bad, err
		}
	}
}
