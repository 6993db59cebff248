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

// DecodeManifest reads a manifest. Errors: ErrMalformed, ErrNewerFormat.
func DecodeManifest(r io.Reader) (Manifest, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20))
	if err != nil {
		return Manifest{}, err
	}
	defer z.Close()
	lines := bufio.NewScanner(z)
	lines.Buffer(make([]byte, 0, 64<<10), 1<<20)
	var m Manifest
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
		m.Records = append(m.Records, rec)
	}
	if err := lines.Err(); err != nil {
		return Manifest{}, fmt.Errorf("manifest: %w: %v", ErrMalformed, err)
	}
	if m.Header.Format == 0 || m.Header.Entries+m.Header.Repeats != len(m.Records) {
		return Manifest{}, fmt.Errorf("manifest: header counts %d records, %d follow: %w",
			m.Header.Entries+m.Header.Repeats, len(m.Records), ErrMalformed)
	}
	return m, nil
}
