// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
)

var golden = flag.Bool("golden", false, "write golden files that are missing")

const goldenFile = "testdata/v1/000000000001.log"

var goldenMarker = marker{0x73, 0x75, 0x62, 0x73, 0x74, 0x6f, 0x72, 0x6d}

func goldenRecord(b []byte, m marker, r *record, body []byte) []byte {
	r.body = int64(len(body))
	b = append(r.appendHead(b, m), body...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(body, castagnoli))
}

func goldenNotice(data []byte, second int) wire.Notice {
	return noticeOf(data, received.Add(time.Duration(second)*time.Second))
}

// goldenSegment holds a record of each kind: an object, one in two parts, a
// notice, and that the first object is done.
func goldenSegment(t testing.TB) []byte {
	b := encodeSegmentHead(1, goldenMarker)
	add := func(k kind, sequence uint64, meta, body []byte) Place {
		p := Place{Segment: 1, Offset: int64(len(b)), Size: int64(len(body))}
		b = goldenRecord(b, goldenMarker, &record{kind: k, sequence: sequence, meta: meta}, body)
		return p
	}
	object := func(n wire.Notice, parts ...Place) []byte {
		meta, err := encodeObject(n, "", parts)
		if err != nil {
			t.Fatal(err)
		}
		return meta
	}
	add(kindObject, 1, object(goldenNotice([]byte("first"), 1)), []byte("first"))
	parts := []Place{add(kindPart, 2, nil, []byte("two ")), add(kindPart, 3, nil, []byte("parts"))}
	add(kindObject, 4, object(goldenNotice([]byte("two parts"), 2), parts...), nil)
	add(kindNotice, 5, object(goldenNotice([]byte("stored"), 3)), nil)
	add(kindDone, 6, encodeDone(1), nil)
	return b
}

// A released segment is read as it always was, and written as it always was.
func TestGolden(t *testing.T) {
	want := goldenSegment(t)
	if _, err := os.Stat(goldenFile); *golden && errors.Is(err, os.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(goldenFile), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(goldenFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	released, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(released, want) {
		t.Errorf("the released format changed without a new version:\n%s", cmp.Diff(released, want))
	}
	dir := t.TempDir()
	if err := os.WriteFile(segmentPath(dir, 1), released, 0o640); err != nil {
		t.Fatal(err)
	}
	s := open(t, Config{Dir: dir})
	e := next(t, s)
	if diff := cmp.Diff(goldenNotice([]byte("two parts"), 2), e.Notice); diff != "" || string(content(t, e)) != "two parts" {
		t.Errorf("the object in parts reads differently (-want +got):\n%s", diff)
	}
	e = next(t, s)
	if diff := cmp.Diff(goldenNotice([]byte("stored"), 3), e.Notice); diff != "" || !e.Stored {
		t.Errorf("the notice reads differently (-want +got):\n%s", diff)
	}
	if st := s.Stats(); st.Objects != 2 || st.Bytes != 9 || st.Quarantined != 0 || st.Cut != 0 {
		t.Errorf("%+v", st)
	}
}

// fixChecksums makes the checksums of a segment and of its first record right,
// so that a fuzzer or a test comes behind them.
func fixChecksums(b []byte) {
	if len(b) < segmentHead {
		return
	}
	binary.LittleEndian.PutUint32(b[32:], crc32.Checksum(b[:32], castagnoli))
	r := b[segmentHead:]
	if len(r) < headSize {
		return
	}
	meta := int64(binary.LittleEndian.Uint32(r[12:]))
	if headSize+meta > int64(len(r)) {
		return
	}
	crc := crc32.Update(crc32.Checksum(r[:32], castagnoli), castagnoli, r[headSize:headSize+meta])
	binary.LittleEndian.PutUint32(r[32:], crc)
}
