// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// golden writes the file if it does not exist yet. It never changes: packs of
// released versions stay readable for ever.
var golden = flag.Bool("golden", false, "write the missing golden file")

const goldenFile = "testdata/v1/pack.tar"

var sampleTime = time.Date(2026, 11, 21, 23, 59, 58, 987654321, time.UTC)

func notice(instrument, body string, at time.Time) wire.Notice {
	return wire.Notice{Site: "thule", Instrument: instrument, Record: wire.Record{
		Size: int64(len(body)), Digest: sha256.Sum256([]byte(body)), MediaType: "text/plain", State: wire.StateCurrent,
		ReceivedAt: at, TimeSource: wire.TimeSourceReceived, Completeness: wire.CompletenessVerified,
		Source: "[2001:db8::7]:40001", Gateway: "gateway-0", Incarnation: "01k9zqv7r3",
	}}
}

// sample is a pack with a member of each kind, and what its notices are.
func sample(t testing.TB) (key string, data []byte, members []wire.Notice, bodies []string) {
	t.Helper()
	key = wire.PackKey("thule", sampleTime, "gateway-0", "01k9zqv7r3", 7)
	moved := notice("sonde", strings.Repeat("moved ", 200), sampleTime.Add(time.Nanosecond))
	moved.ID = wire.MemberID(wire.PackKey("thule", sampleTime, "gateway-1", "older", 2), 1536)
	long := notice("a-name-that-is-as-long-as-names-of-instruments-can-be-63-letters", "x", sampleTime)
	own := notice("sonde", "had a key of its own", sampleTime)
	own.ID = wire.RawKey("thule", "sonde", sampleTime.Add(time.Millisecond), own.Digest)
	bodies = []string{"frame", strings.Repeat("moved ", 200), strings.Repeat("b", block), "x", "had a key of its own"}
	var out bytes.Buffer
	w := NewWriter(key, &out)
	for i, n := range []wire.Notice{notice("allsky-1", bodies[0], sampleTime), moved, notice("sonde", bodies[2], sampleTime), long, own} {
		n, err := w.Add(n, strings.NewReader(bodies[i]))
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, n)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return key, out.Bytes(), members, bodies
}

// TestGolden: packs are written as they were released, and read so.
func TestGolden(t *testing.T) {
	key, data, want, bodies := sample(t)
	if _, err := os.Stat(goldenFile); *golden && errors.Is(err, os.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(goldenFile), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(goldenFile, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	released, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, released) {
		t.Error("the pack is written otherwise than it was released")
	}
	var got []wire.Notice
	for n, err := range bucket.MembersFrom(bytes.NewReader(released), key, int64(len(released))) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, n)
		if body := string(released[n.Offset : n.Offset+n.Length]); body != bodies[len(got)-1] {
			t.Errorf("at %d are %d other bytes", n.Offset, n.Length)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("members (-written +read):\n%s", diff)
	}
}

// TestPlainTar: plain tar extracts a tree of the members.
func TestPlainTar(t *testing.T) {
	_, data, members, bodies := sample(t)
	archive := tar.NewReader(bytes.NewReader(data))
	for i, n := range members {
		head, err := archive.Next()
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		n.ID = strings.Replace(n.ID, n.Key, "packs/", 1)
		if head.Name != wire.MemberName(n) || string(body) != bodies[i] || head.Mode != mode || !head.ModTime.Equal(n.ReceivedAt) {
			t.Errorf("member %d is %+v, %d bytes", i, head, len(body))
		}
	}
	if _, err := archive.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last member: %v", err)
	}
}

// TestMembersOfAStore: the headers are read by parts, past large members.
func TestMembersOfAStore(t *testing.T) {
	store := testenv.SharedBucket(t)
	key := wire.PackKey("thule", sampleTime, "gateway-0", "one", 1)
	var out bytes.Buffer
	w := NewWriter(key, &out)
	var want []wire.Notice
	for _, size := range []int{1, 3 * bucket.ReadChunk, bucket.ReadChunk - 2048, 700, 2*bucket.ReadChunk + 1, 5} {
		body := strings.Repeat("z", size)
		n, err := w.Add(notice("sonde", body, sampleTime), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, n)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := store.Put(t.Context(), key, bytes.NewReader(out.Bytes()), w.Size(), objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	var got []wire.Notice
	for n, err := range Members(t.Context(), store, key, w.Size()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, n)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("members (-written +read):\n%s", diff)
	}
	for _, err := range Members(t.Context(), store, key+"x", w.Size()) {
		if !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("a pack that is gone: %v", err)
		}
	}
	for _, err := range Members(t.Context(), store, key, 1000) { // as if it were shorter
		if !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("a pack that is cut off: %v", err)
		}
	}
}

// TestDamagedBytes: nothing is packed under a digest that is another's.
func TestDamagedBytes(t *testing.T) {
	for name, body := range map[string]string{"other bytes": "frame 1", "fewer bytes": "frame"} {
		_, err := NewWriter("key", io.Discard).Add(notice("sonde", "frame 2", sampleTime), strings.NewReader(body))
		if err == nil || name == "other bytes" && !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzMembers: whatever a pack holds, reading it ends, and what it says of
// members lies within it.
func FuzzMembers(f *testing.F) {
	key, data, _, _ := sample(f)
	f.Add(data)
	f.Add(data[:len(data)-Trailer])
	f.Add(data[block:])
	f.Add([]byte{})
	for _, i := range []int{0, 156, block, block + 20, 2 * block, 3*block + 124} {
		torn := bytes.Clone(data)
		torn[i] ^= 0x11
		f.Add(torn)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		last := int64(0)
		for n, err := range bucket.MembersFrom(bytes.NewReader(data), key, int64(len(data))) {
			if err != nil {
				if !errors.Is(err, wire.ErrMalformed) && !errors.Is(err, wire.ErrNewerFormat) {
					t.Errorf("error %v is none of those promised", err)
				}
				return
			}
			if n.Offset < last || n.Length != n.Size || n.Offset+n.Length > int64(len(data)) || n.Key != key || n.Site != "thule" {
				t.Errorf("member %+v of a pack of %d bytes, after %d", n, len(data), last)
			}
			last = n.Offset + n.Length
		}
	})
}

// TestQuickHeader: our own headers are those of archive/tar, byte for byte.
func TestQuickHeader(t *testing.T) {
	quick := 0
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(0, 1<<34).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "fraction")).UTC()
		if rapid.Bool().Draw(t, "round") {
			at = at.Truncate(time.Millisecond)
		}
		name := "o/thule/" + rapid.StringMatching(`[a-z0-9-]{1,63}/[a-z]{0,30}/[a-zé]{1,20}`).Draw(t, "name")
		records := map[string]string{wire.PaxFormat: "1",
			wire.PaxRecord: rapid.StringMatching(`[ -~é]{1,1000}`).Draw(t, "record")}
		size := rapid.Int64Range(0, 1<<34).Draw(t, "size")
		got := quickHeader(name, size, at, records)
		if got == nil {
			return
		}
		quick++
		want, err := tarHeader(name, size, at, records)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%v (-tar +quick):\n%s", err, cmp.Diff(want, got))
		}
	})
	if quick == 0 {
		t.Error("no header was of our own making")
	}
	if n := notice("allsky-1", "frame", sampleTime); quickHeader(wire.MemberName(n), n.Size, n.ReceivedAt, map[string]string{wire.PaxFormat: "1", wire.PaxRecord: "{}"}) == nil {
		t.Error("the header of a usual member is not")
	}
}

func BenchmarkHeader(b *testing.B) {
	n := notice("allsky-1", "frame", sampleTime)
	records, err := wire.MemberPax(n)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("ours", func(b *testing.B) {
		for b.Loop() {
			quickHeader(wire.MemberName(n), n.Size, n.ReceivedAt, records)
		}
	})
	b.Run("tar", func(b *testing.B) {
		for b.Loop() {
			if _, err := tarHeader(wire.MemberName(n), n.Size, n.ReceivedAt, records); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("pax", func(b *testing.B) {
		for b.Loop() {
			if _, err := wire.MemberPax(n); err != nil {
				b.Fatal(err)
			}
		}
	})
}
