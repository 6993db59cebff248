// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
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
	// Entries and Repeats that follow.
	Entries int `json:"entries"`
	Repeats int `json:"repeats,omitempty"`
	// Replaces names the parts that a compacted day stands for.
	Replaces []string `json:"replaces,omitempty"`
	// ObservedFrom and ObservedTo are the least and greatest observation time
	// that the entries hold.
	ObservedFrom *time.Time `json:"observedFrom,omitempty"`
	ObservedTo   *time.Time `json:"observedTo,omitempty"`
	// Writer and Incarnation wrote the part.
	Writer      string `json:"writer"`
	Incarnation string `json:"incarnation"`
}

// Manifest is a part or a compacted day: JSON lines, compressed with zstd. A
// record with State Current is an entry; one with State Withdrawn is a repeat
// that was, or still must be, taken out of the store.
type Manifest struct {
	Header  ManifestHeader
	Records []Record
}

// Encode writes the manifest. Counts and observation times of the header are
// computed from the records.
func (m Manifest) Encode() ([]byte, error) {
	m.Header.Format = Format
	m.Header.Entries, m.Header.Repeats = 0, 0
	m.Header.ObservedFrom, m.Header.ObservedTo = nil, nil
	for i := range m.Records {
		m.Header.count(&m.Records[i])
	}
	var out bytes.Buffer
	z, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	enc := json.NewEncoder(z)
	if err := enc.Encode(m.Header); err != nil {
		return nil, err
	}
	for i := range m.Records {
		if err := enc.Encode(m.Records[i]); err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func (h *ManifestHeader) count(r *Record) {
	if r.State == StateWithdrawn {
		h.Repeats++
		return
	}
	h.Entries++
	if r.ObservedFrom != nil && (h.ObservedFrom == nil || r.ObservedFrom.Before(*h.ObservedFrom)) {
		h.ObservedFrom = r.ObservedFrom
	}
	if r.ObservedTo != nil && (h.ObservedTo == nil || r.ObservedTo.After(*h.ObservedTo)) {
		h.ObservedTo = r.ObservedTo
	}
}

// Bounds on what DecodeManifest accepts: the window that a decoder must hold
// (ours is 8 MiB), and one line (a header that names a day of parts).
const (
	maxManifestWindow = 64 << 20
	maxManifestLine   = 16 << 20
)

// DecodeManifest reads a manifest. Errors: ErrMalformed, ErrNewerFormat, and
// those of r, which say nothing about the manifest.
func DecodeManifest(r io.Reader) (Manifest, error) {
	source := &watchedReader{r: r}
	z, err := zstd.NewReader(source, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxManifestWindow))
	if err != nil {
		return Manifest{}, fmt.Errorf("manifest: %w", err)
	}
	defer z.Close()
	m, err := readManifest(z)
	if source.err != nil {
		return Manifest{}, fmt.Errorf("manifest: %w", source.err)
	}
	return m, err
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

// readManifest reads the lines of a manifest.
func readManifest(r io.Reader) (m Manifest, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxManifestLine)
	var seen ManifestHeader
	for first := true; lines.Scan(); first = false {
		if first {
			m.Header, err = decode(lines.Bytes(), func(h ManifestHeader) int { return h.Format })
			if err != nil {
				return Manifest{}, err
			}
			continue
		}
		var rec Record
		if err := json.Unmarshal(lines.Bytes(), &rec); err != nil {
			return Manifest{}, fmt.Errorf("manifest record %d: %w: %v", len(m.Records)+1, ErrMalformed, err)
		}
		if err := rec.check(); err != nil {
			return Manifest{}, fmt.Errorf("manifest record %d: %w", len(m.Records)+1, err)
		}
		m.Records = append(m.Records, rec)
		seen.count(&rec)
	}
	if err := lines.Err(); err != nil {
		return Manifest{}, fmt.Errorf("manifest: %w: %v", ErrMalformed, err)
	}
	if m.Header.Format == 0 {
		return Manifest{}, fmt.Errorf("manifest is empty: %w", ErrMalformed)
	}
	if m.Header.Entries != seen.Entries || m.Header.Repeats != seen.Repeats {
		return Manifest{}, fmt.Errorf("manifest: header counts %d entries and %d repeats, %d and %d follow: %w",
			m.Header.Entries, m.Header.Repeats, seen.Entries, seen.Repeats, ErrMalformed)
	}
	return m, nil
}
