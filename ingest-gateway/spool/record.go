// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/substorm/substorm/internal/wire"
)

// Format is the version of segments and records.
const Format = 1

// Kind says what a record is.
type kind uint8

const (
	// kindObject: an object that waits for the store. Its bytes are the body, or
	// in parts that the meta names.
	kindObject kind = 1
	// kindNotice: an object that is stored and waits for its announcement.
	kindNotice kind = 2
	// kindPart holds bytes of an object whose record follows, or never does.
	kindPart kind = 3
	// kindDone: records that are finished.
	kindDone kind = 4
)

// The fixed part of a record, little-endian:
//
//	 0  marker      8  the segment's, so that bytes of an object never pass for a record
//	 8  format      1
//	 9  kind        1
//	10  0           2
//	12  meta        4  bytes
//	16  sequence    8  counts records, in the order of the log
//	24  body        8  bytes
//	32  crc         4  CRC32C of the 32 bytes before and of the meta
//
// Then the meta (JSON), the body, and the CRC32C of the body (4 bytes).
const (
	headSize    = 36
	trailerSize = 4
	// maxMeta holds the places of the parts of the largest object.
	maxMeta = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// marker distinguishes the records of one segment from all other bytes: it is random.
type marker [8]byte

// record is what stands before a record's body.
type record struct {
	kind     kind
	sequence uint64
	meta     []byte
	body     int64
}

// size is the size of the whole record in bytes.
func (r *record) size() int64 { return headSize + int64(len(r.meta)) + r.body + trailerSize }

// appendHead writes all that stands before the body.
func (r *record) appendHead(b []byte, m marker) []byte {
	start := len(b)
	b = append(b, m[:]...)
	b = append(b, Format, byte(r.kind), 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.meta)))
	b = binary.LittleEndian.AppendUint64(b, r.sequence)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.body))
	crc := crc32.Update(crc32.Checksum(b[start:], castagnoli), castagnoli, r.meta)
	b = binary.LittleEndian.AppendUint32(b, crc)
	return append(b, r.meta...)
}

// readHead reads what stands before a record's body at an offset of a segment
// of so many bytes. Errors: ErrCorrupt, wire.ErrNewerFormat, or the file's.
func readHead(f io.ReaderAt, offset, size int64, m marker) (record, error) {
	if size-offset < headSize+trailerSize {
		return record{}, fmt.Errorf("%w: %d bytes are too few for one", ErrCorrupt, size-offset)
	}
	head := make([]byte, headSize)
	if _, err := f.ReadAt(head, offset); err != nil {
		return record{}, err
	}
	if marker(head[:8]) != m {
		return record{}, fmt.Errorf("%w: it does not begin as one", ErrCorrupt)
	}
	r := record{
		kind: kind(head[9]), sequence: binary.LittleEndian.Uint64(head[16:]),
		body: int64(binary.LittleEndian.Uint64(head[24:])),
	}
	meta := int64(binary.LittleEndian.Uint32(head[12:]))
	if meta > maxMeta || r.body < 0 || r.body > size || headSize+meta+r.body+trailerSize > size-offset {
		return record{}, fmt.Errorf("%w: it is longer than its segment", ErrCorrupt)
	}
	r.meta = make([]byte, meta)
	if _, err := f.ReadAt(r.meta, offset+headSize); err != nil {
		return record{}, err
	}
	crc := crc32.Update(crc32.Checksum(head[:32], castagnoli), castagnoli, r.meta)
	if crc != binary.LittleEndian.Uint32(head[32:]) {
		return record{}, fmt.Errorf("%w: wrong checksum of its head", ErrCorrupt)
	}
	if head[8] > Format {
		return record{}, fmt.Errorf("spool record of format %d: %w", head[8], wire.ErrNewerFormat)
	}
	if head[8] == 0 || r.kind < kindObject || r.kind > kindDone {
		return record{}, fmt.Errorf("%w: format %d, kind %d", ErrCorrupt, head[8], r.kind)
	}
	return r, nil
}

// verifyBody reads a body of so many bytes at an offset and compares its checksum.
func verifyBody(f io.ReaderAt, offset, size int64) error {
	crc := crc32.New(castagnoli)
	if _, err := io.Copy(crc, io.NewSectionReader(f, offset, size)); err != nil {
		return err
	}
	var trailer [trailerSize]byte
	if _, err := f.ReadAt(trailer[:], offset+size); err != nil {
		return err
	}
	if crc.Sum32() != binary.LittleEndian.Uint32(trailer[:]) {
		return fmt.Errorf("%w: wrong checksum of its body", ErrCorrupt)
	}
	return nil
}

// Place is where a record of a part is.
type Place struct {
	Segment uint64 `json:"segment"`
	Offset  int64  `json:"offset"`
	// Size of the part in bytes, without the record's own.
	Size int64 `json:"size"`
}

// objectMeta is the meta of an object or a notice.
type objectMeta struct {
	Notice wire.Notice
	Parts  []Place
	// Peer is the gateway that has a copy.
	Peer string
}

// savedMeta is objectMeta as stored on the volume.
type savedMeta struct {
	Notice json.RawMessage `json:"notice"`
	Parts  []Place         `json:"parts,omitempty"`
	Peer   string          `json:"peer,omitempty"`
}

// size is the size of the object in the spool.
func (m *objectMeta) size(r *record) int64 {
	n := r.body
	for _, p := range m.Parts {
		n += p.Size
	}
	return n
}

func encodeObject(n wire.Notice, peer string, parts []Place) ([]byte, error) {
	notice, err := wire.Encode(n)
	if err != nil {
		return nil, err
	}
	meta, err := json.Marshal(savedMeta{Notice: notice, Parts: parts, Peer: peer})
	if err == nil && len(meta) > maxMeta {
		err = fmt.Errorf("spool record of %s: %d bytes of metadata are too many", n.Key, len(meta))
	}
	return meta, err
}

// object reads the meta of an object or a notice. Errors: ErrCorrupt,
// wire.ErrNewerFormat.
func (r *record) object() (objectMeta, error) {
	var saved savedMeta
	if err := json.Unmarshal(r.meta, &saved); err != nil {
		return objectMeta{}, fmt.Errorf("%w: %v", ErrCorrupt, err)
	}
	n, err := wire.Decode[wire.Notice](saved.Notice)
	if errors.Is(err, wire.ErrMalformed) {
		err = fmt.Errorf("%w: %v", ErrCorrupt, err)
	}
	m := objectMeta{Notice: n, Parts: saved.Parts, Peer: saved.Peer}
	if err != nil {
		return m, err
	}
	total := m.size(r)
	for _, p := range m.Parts {
		if p.Size < 0 || p.Offset < 0 || total < 0 {
			return m, fmt.Errorf("%w: part %+v", ErrCorrupt, p)
		}
	}
	if r.kind == kindObject && total != m.Notice.Size || r.kind == kindNotice && total != 0 || m.Notice.Key == "" {
		return m, fmt.Errorf("%w: it holds %d bytes of %q, which has %d", ErrCorrupt, total, m.Notice.Key, m.Notice.Size)
	}
	return m, nil
}

// doneMeta is the meta of kindDone.
type doneMeta struct {
	Done uint64 `json:"done"`
}

func encodeDone(sequence uint64) []byte {
	meta, _ := json.Marshal(doneMeta{sequence}) // never fails
	return meta
}

func (r *record) done() (uint64, error) {
	var m doneMeta
	if err := json.Unmarshal(r.meta, &m); err != nil {
		return 0, fmt.Errorf("%w: %v", ErrCorrupt, err)
	}
	return m.Done, nil
}
