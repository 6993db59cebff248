// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/internal/wire"
)

// The beginning of a segment, little-endian: magic (8 bytes), format (4), 0
// (4), number (8), marker (8), CRC32C of the 32 bytes before (4).
const (
	segmentMagic = "SBSTSPL\x00"
	segmentHead  = 36
)

// segment is one file of the log. The spool's mu guards its counts.
type segment struct {
	number uint64
	marker marker
	path   string
	// size is what is committed, in bytes.
	size int64
	// file is open while the segment is the active one.
	file *os.File

	// unread objects wait for the cursor, open ones were given out; both count records of objects
	// and notices. parts are those still needed.
	unread, open, parts int64
	unreadBytes         int64
	// oldest is when the first object of those was received.
	oldest time.Time
	// gaps are runs of bytes that are no records, by where they begin: where
	// they end.
	gaps map[int64]int64
	// finished are records that were done before the spool was opened.
	finished map[uint64]bool
	// unsure: it was the last one when the spool was opened, so that its last
	// batch may not have come to the disk.
	unsure bool
	// only: it holds the only copy of corrupt bytes, which quarantine does not have. It stays until
	// the spool is opened again, which tries once more.
	only bool
}

func (g *segment) needed() bool { return g.unread > 0 || g.open > 0 || g.parts > 0 || g.only }

func segmentPath(dir string, number uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%012d%s", number, extension))
}

// numberOf returns the number of the segment in a file, and false for any other file.
func numberOf(path string) (uint64, bool) {
	name, ok := strings.CutSuffix(filepath.Base(path), extension)
	if !ok || len(name) < 12 {
		return 0, false
	}
	n, err := strconv.ParseUint(name, 10, 63)
	return n, err == nil && filepath.Base(segmentPath("", n)) == filepath.Base(path)
}

func encodeSegmentHead(number uint64, m marker) []byte {
	b := append([]byte(nil), segmentMagic...)
	b = binary.LittleEndian.AppendUint32(b, Format)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, number)
	b = append(b, m[:]...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// readSegmentHead returns the marker of the segment with that number. Errors:
// ErrCorrupt, wire.ErrNewerFormat, or the file's.
func readSegmentHead(f io.ReaderAt, number uint64) (marker, error) {
	head := make([]byte, segmentHead)
	if n, err := f.ReadAt(head, 0); errors.Is(err, io.EOF) {
		return marker{}, fmt.Errorf("%w: a segment of %d bytes", ErrCorrupt, n)
	} else if err != nil {
		return marker{}, err
	}
	format := binary.LittleEndian.Uint32(head[8:])
	switch {
	case string(head[:8]) != segmentMagic, crc32.Checksum(head[:32], castagnoli) != binary.LittleEndian.Uint32(head[32:]):
		return marker{}, fmt.Errorf("%w: the file does not begin as a segment", ErrCorrupt)
	case format > Format:
		return marker{}, fmt.Errorf("spool segment of format %d: %w", format, wire.ErrNewerFormat)
	case format == 0 || binary.LittleEndian.Uint64(head[16:]) != number:
		return marker{}, fmt.Errorf("%w: segment %d of format %d", ErrCorrupt, binary.LittleEndian.Uint64(head[16:]), format)
	}
	return marker(head[24:32]), nil
}

// createSegment makes a file whose name is on the disk; its head goes there
// with the first batch.
func (s *Spool) createSegment(number uint64) (*segment, error) {
	g := &segment{number: number, path: segmentPath(s.cfg.Dir, number), size: segmentHead, gaps: map[int64]int64{}}
	_, _ = rand.Read(g.marker[:]) // never fails
	f, err := os.OpenFile(g.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return nil, err
	}
	g.file = f
	if _, err = f.Write(encodeSegmentHead(number, g.marker)); err == nil {
		err = s.syncDir(s.cfg.Dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(g.path))
	}
	return g, nil
}

func (s *Spool) syncDir(dir string) error {
	if s.cfg.unsafe {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (s *Spool) sync(f *os.File) error {
	if s.cfg.unsafe {
		return nil
	}
	return unix.Fdatasync(int(f.Fd()))
}

// findRecord returns where, from an offset on, the next record with a correct head begins, or the
// size if there is none.
func (g *segment) findRecord(f io.ReaderAt, from, size int64) (int64, error) {
	const chunk = 256 << 10
	buf := make([]byte, chunk)
	for at := from; at < size; {
		n, err := f.ReadAt(buf[:min(chunk, size-at)], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		i := bytes.Index(buf[:n], g.marker[:])
		if i < 0 {
			if n < chunk {
				return size, nil
			}
			at += int64(n - len(g.marker) + 1)
			continue
		}
		at += int64(i)
		_, err = readHead(f, at, size, g.marker)
		if err == nil || errors.Is(err, wire.ErrNewerFormat) {
			return at, nil
		}
		if !errors.Is(err, ErrCorrupt) {
			return 0, err
		}
		at++
	}
	return size, nil
}

// tornAt says whether the bytes between an offset and the segment's end are the beginning of a
// record that was not written to its end, and returns its head if that is whole. A record that was
// written to its end and is damaged is not torn, nor is anything undecidable.
func (g *segment) tornAt(f io.ReaderAt, offset int64) (record, bool, error) {
	rest := g.size - offset
	head := make([]byte, min(rest, headSize))
	if _, err := f.ReadAt(head, offset); err != nil {
		return record{}, false, err
	}
	if n := min(len(head), len(g.marker)); !bytes.Equal(head[:n], g.marker[:n]) {
		return record{}, false, nil
	}
	if rest < headSize {
		return record{}, true, nil
	}
	length := int64(binary.LittleEndian.Uint32(head[12:]))
	if length > maxMeta {
		return record{}, false, nil
	}
	meta := make([]byte, min(length, rest-headSize))
	if _, err := f.ReadAt(meta, offset+headSize); err != nil && !errors.Is(err, io.EOF) {
		return record{}, false, err
	}
	if int64(len(meta)) < length {
		// Its checksum is of what is not there. The JSON of a whole record that
		// says a wrong length comes to its end.
		err := json.NewDecoder(bytes.NewReader(meta)).Decode(new(json.RawMessage))
		return record{}, errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF), nil
	}
	if crc32.Update(crc32.Checksum(head[:32], castagnoli), castagnoli, meta) != binary.LittleEndian.Uint32(head[32:]) {
		return record{}, false, nil
	}
	r := record{kind: kind(head[9]), sequence: binary.LittleEndian.Uint64(head[16:]), meta: meta, body: int64(binary.LittleEndian.Uint64(head[24:]))}
	return r, r.body <= MaxBody && r.size() > rest, nil
}
