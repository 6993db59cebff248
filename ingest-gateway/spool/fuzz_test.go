// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/substorm/substorm/internal/wire"
)

// FuzzSegment opens any bytes as the one segment of a spool, and takes out of
// it what it holds. It ends, without a panic, and with every byte of what was
// given out checked.
func FuzzSegment(f *testing.F) {
	whole := goldenSegment(f)
	f.Add(whole, false)
	f.Add(whole[:len(whole)-3], false)
	f.Add(whole[:segmentHead], false)
	f.Add([]byte{}, false)
	for _, at := range []int{3, 9, segmentHead + 2, segmentHead + 9, segmentHead + 13, segmentHead + 25, segmentHead + 40, len(whole) - 2} {
		flipped := bytes.Clone(whole)
		flipped[at] ^= 0x41
		f.Add(flipped, false)
		f.Add(flipped, true)
	}
	f.Fuzz(func(t *testing.T, data []byte, fix bool) {
		if fix {
			data = bytes.Clone(data)
			fixChecksums(data)
		}
		drain(t, data)
	})
}

// FuzzMeta puts any meta into a record whose checksums are right.
func FuzzMeta(f *testing.F) {
	meta, err := encodeObject(goldenNotice([]byte("body"), 1), "", nil)
	if err != nil {
		f.Fatal(err)
	}
	parts, err := encodeObject(goldenNotice([]byte("body"), 1), "", []Place{{Segment: 1, Offset: 36, Size: 4}, {Segment: 9, Offset: -1, Size: 1 << 62}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint8(kindObject), meta, []byte("body"))
	f.Add(uint8(kindNotice), meta, []byte{})
	f.Add(uint8(kindObject), parts, []byte{})
	f.Add(uint8(kindPart), []byte{}, []byte("body"))
	f.Add(uint8(kindDone), encodeDone(1), []byte{})
	f.Add(uint8(kindDone), []byte(`{"done":-1}`), []byte{})
	f.Fuzz(func(t *testing.T, k uint8, meta, body []byte) {
		if len(meta) > maxMeta || len(body) > 1<<20 {
			return
		}
		b := encodeSegmentHead(1, goldenMarker)
		b = goldenRecord(b, goldenMarker, &record{kind: kind(k), sequence: 1, meta: meta}, body)
		drain(t, b)
	})
}

func drain(t *testing.T, data []byte) {
	dir := t.TempDir()
	if err := os.WriteFile(segmentPath(dir, 1), data, 0o640); err != nil {
		t.Fatal(err)
	}
	s, err := Open(Config{Dir: dir, Size: 1 << 30, unsafe: true})
	if errors.Is(err, wire.ErrNewerFormat) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for {
		e, err := s.next()
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			break
		}
		if err := e.Verify(); err == nil {
			r, err := e.Reader()
			if err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 1000)
			for err == nil {
				_, err = r.Read(buf)
			}
			r.Close()
			err = s.Done(e)
			if err != nil {
				t.Fatal(err)
			}
		} else if err := e.Quarantine(err); err != nil {
			t.Fatal(err)
		}
	}
	if st := s.Stats(); st.Objects != 0 || st.Bytes != 0 {
		t.Errorf("%+v", st)
	}
}

// FuzzRecord reads any bytes as a record, in memory: many more than FuzzSegment. A record
// that is accepted is written again as it was.
func FuzzRecord(f *testing.F) {
	whole := goldenSegment(f)[segmentHead:]
	f.Add(whole)
	f.Add(whole[:headSize])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) >= headSize {
			copy(data, goldenMarker[:])
			segment := append(encodeSegmentHead(1, goldenMarker), data...)
			fixChecksums(segment)
			data = segment[segmentHead:]
		}
		r, err := readHead(bytes.NewReader(data), 0, int64(len(data)), goldenMarker)
		if err != nil {
			return
		}
		if r.size() > int64(len(data)) {
			t.Fatalf("a record of %d bytes in %d", r.size(), len(data))
		}
		if again := r.appendHead(nil, goldenMarker); data[10] == 0 && data[11] == 0 && !bytes.Equal(again, data[:len(again)]) {
			t.Fatalf("read %+v, written %x", r, again)
		}
		_, _ = r.done()
		if m, err := r.object(); err == nil && r.kind == kindObject && m.size(&r) != m.Notice.Size {
			t.Fatalf("%+v", m)
		}
	})
}
