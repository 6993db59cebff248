// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"
)

// ManifestHeader is the first line of a manifest part or compacted day.
type ManifestHeader struct {
	Format     int    `json:"format"`
	Site       string `json:"site"`
	Instrument string `json:"instrument"`
	Day        Day    `json:"day"`
	// Entries and Duplicates that follow.
	Entries    int `json:"entries"`
	Duplicates int `json:"duplicates,omitempty"`
	// Changes are those of the entries that replace an earlier one (Record.Changes).
	Changes int `json:"changes,omitempty"`
	// Replaces are the keys of the parts that a compacted day stands for.
	Replaces []string `json:"replaces,omitempty"`
	// NextPart is the least number that the next part of a compacted day may have:
	// parts before it may be gone. 0: the parts that there are say it.
	NextPart int `json:"nextPart,omitempty"`
	// ObservedFrom and ObservedTo are the least and greatest observation time
	// of the entries (Record.ObservedSpan).
	ObservedFrom *time.Time `json:"observedFrom,omitempty"`
	ObservedTo   *time.Time `json:"observedTo,omitempty"`
	// Writer and Incarnation wrote the part.
	Writer      string `json:"writer"`
	Incarnation string `json:"incarnation"`
}

// Manifest is a part or a compacted day: JSON lines, compressed with zstd. A
// record with State Current is an entry; one with State Duplicate is a duplicate
// that was, or still must be, taken out of the store; one whose State changes
// replaces an earlier one of the same ID. A record of a compacted day
// stands for all of the same ID in what it replaces.
type Manifest struct {
	Header  ManifestHeader
	Records []Record
}

// Encode writes the manifest. Counts and observation times of the header are
// computed from the records.
func (m Manifest) Encode() ([]byte, error) {
	m.Header.Format = Format
	m.Header.Entries, m.Header.Duplicates, m.Header.Changes = 0, 0, 0
	m.Header.ObservedFrom, m.Header.ObservedTo = nil, nil
	for i := range m.Records {
		m.Header.count(&m.Records[i])
	}
	return encodeLines(m.Header, m.Records, true)
}

// ManifestWriter writes the lines of a manifest that is too large to be held in
// memory. Its header counts them, and so is known only at the end: the file is the
// header's frame (RFC 8878), which Close returns, and then what was written to w.
type ManifestWriter struct {
	header ManifestHeader
	frame  *zstd.Encoder
	lines  *json.Encoder
}

// NewManifestWriter begins a manifest. Counts and observation times of the header
// are computed.
func NewManifestWriter(w io.Writer, h ManifestHeader) (*ManifestWriter, error) {
	frame, err := newLineEncoder(w)
	if err != nil {
		return nil, err
	}
	h.Format, h.Entries, h.Duplicates, h.Changes, h.ObservedFrom, h.ObservedTo = Format, 0, 0, 0, nil, nil
	return &ManifestWriter{header: h, frame: frame, lines: json.NewEncoder(frame)}, nil
}

// Add writes a record.
func (m *ManifestWriter) Add(r Record) error {
	m.header.count(&r)
	return m.lines.Encode(r)
}

// Close ends the lines and returns the frame that goes before them.
func (m *ManifestWriter) Close() ([]byte, error) {
	if err := m.frame.Close(); err != nil {
		return nil, err
	}
	line, err := json.Marshal(m.header)
	if err != nil {
		return nil, err
	}
	z, err := newLineEncoder(nil)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	return z.EncodeAll(append(line, '\n'), nil), nil
}

func (h *ManifestHeader) count(r *Record) {
	if r.State == StateDuplicate {
		h.Duplicates++
		return
	}
	h.Entries++
	if r.Changes() {
		h.Changes++
	}
	from, to, told := r.ObservedSpan()
	if told && (h.ObservedFrom == nil || from.Before(*h.ObservedFrom)) {
		h.ObservedFrom = &from
	}
	if told && (h.ObservedTo == nil || to.After(*h.ObservedTo)) {
		h.ObservedTo = &to
	}
}

// Bounds on what DecodeManifest accepts: the window that a decoder must hold (8 MiB in our first versions), and one line (a header that
// names a day of parts).
const (
	maxManifestWindow = 64 << 20
	maxManifestLine   = 16 << 20
)

// ManifestReader reads a manifest record by record, in memory that does not grow
// with it.
type ManifestReader struct {
	Header ManifestHeader

	source *watchedReader
	close  func()
	lines  *bufio.Scanner
	seen   ManifestHeader // what was counted so far
}

// NewManifestReader reads the header. Errors: ErrMalformed, ErrNewerFormat, and
// those of r, which say nothing about the manifest. The caller closes the reader.
func NewManifestReader(r io.Reader) (*ManifestReader, error) {
	source := &watchedReader{r: r}
	z, err := zstd.NewReader(source, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxManifestWindow),
		zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	m, err := readManifestHeader(z)
	if err != nil {
		z.Close()
		return nil, source.explain(err)
	}
	m.source, m.close = source, z.Close
	return m, nil
}

// readManifestHeader begins to read the lines of a manifest.
func readManifestHeader(lines io.Reader) (*ManifestReader, error) {
	m := &ManifestReader{source: &watchedReader{}, close: func() {}, lines: bufio.NewScanner(lines)}
	m.lines.Buffer(make([]byte, 0, 4<<10), maxManifestLine)
	if !m.lines.Scan() {
		if err := m.lines.Err(); err != nil {
			return nil, fmt.Errorf("manifest: %w: %v", ErrMalformed, err)
		}
		return nil, fmt.Errorf("manifest is empty: %w", ErrMalformed)
	}
	var err error
	m.Header, err = Decode[ManifestHeader](m.lines.Bytes())
	return m, err
}

// Next returns the next record, and io.EOF after the last. Errors: ErrMalformed,
// also where the header counts other records, and those of the reader below.
func (m *ManifestReader) Next() (Record, error) {
	rec, err := m.next()
	if err != nil && !errors.Is(err, io.EOF) {
		return Record{}, m.source.explain(err)
	}
	return rec, err
}

func (m *ManifestReader) next() (Record, error) {
	if !m.lines.Scan() {
		if err := m.lines.Err(); err != nil {
			return Record{}, fmt.Errorf("manifest: %w: %v", ErrMalformed, err)
		}
		if h, seen := &m.Header, &m.seen; h.Entries != seen.Entries || h.Duplicates != seen.Duplicates || h.Changes != seen.Changes {
			return Record{}, fmt.Errorf("manifest: header counts %d entries, %d duplicates and %d changes, %d, %d and %d follow: %w",
				h.Entries, h.Duplicates, h.Changes, seen.Entries, seen.Duplicates, seen.Changes, ErrMalformed)
		}
		return Record{}, io.EOF
	}
	number := m.seen.Entries + m.seen.Duplicates + 1
	var rec Record
	if err := json.Unmarshal(m.lines.Bytes(), &rec); err != nil {
		return Record{}, fmt.Errorf("manifest record %d: %w: %v", number, ErrMalformed, err)
	}
	if err := rec.check(); err != nil {
		return Record{}, fmt.Errorf("manifest record %d: %w", number, err)
	}
	m.seen.count(&rec)
	return rec, nil
}

// Close frees the reader's memory.
func (m *ManifestReader) Close() { m.close() }

// DecodeManifest reads a whole manifest. Errors: as NewManifestReader and Next.
func DecodeManifest(r io.Reader) (Manifest, error) {
	reader, err := NewManifestReader(r)
	if err != nil {
		return Manifest{}, err
	}
	defer reader.Close()
	return reader.rest()
}

func (m *ManifestReader) rest() (Manifest, error) {
	all := Manifest{Header: m.Header}
	for {
		rec, err := m.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return Manifest{}, err
		}
		all.Records = append(all.Records, rec)
	}
}

// watchedReader remembers why its reader failed.
type watchedReader struct {
	r   io.Reader
	err error
}

func (w *watchedReader) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if err != nil && err != io.EOF {
		w.err = err
	}
	return n, err
}

// explain returns the reader's own error, if it had one, for the one that came of it.
func (w *watchedReader) explain(err error) error {
	if w.err != nil {
		return fmt.Errorf("manifest: %w", w.err)
	}
	return err
}
