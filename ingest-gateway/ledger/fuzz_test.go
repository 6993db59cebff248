// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/substorm/substorm/internal/wire"
)

// FuzzFiles reads any bytes as what ended incarnations left. A disk may return anything after a power cut: it ends,
// without a panic, and an error is one of those that wire promises.
func FuzzFiles(f *testing.F) {
	ended := []byte(`{"format":1,"epoch":"1","lost":{"zero":"2026-11-21T00:00:00Z"},"days":[{"instrument":"camera","day":"2026-11-21",` +
		`"incarnations":{"zero":{"objects":2,"objectBytes":20,"digest":"` + wire.Digest{1}.String() + `","resolved":1}}}]}`)
	slots := counters(f)
	f.Add(ended, slots)
	f.Add(ended[:len(ended)/2], slots[:slotSize/2])
	f.Add([]byte(`{"format":9}`), []byte{})
	f.Add([]byte(`[]`), []byte{0})
	f.Add([]byte(`{"format":1,"days":[{"incarnations":null}]}`), slots)
	f.Fuzz(func(t *testing.T, ended, slots []byte) {
		dir := t.TempDir()
		for name, data := range map[string][]byte{"one" + countersExtension: withHead(slots), endedFile: ended} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		e, err := openEnded(dir, "two", slog.New(slog.DiscardHandler))
		if err != nil {
			if !errors.Is(err, wire.ErrMalformed) && !errors.Is(err, wire.ErrNewerFormat) {
				t.Fatalf("error of no known kind: %v", err)
			}
			return
		}
		if _, err := openEnded(dir, "three", slog.New(slog.DiscardHandler)); err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if err := e.setWritten("2"); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzCounters reads any bytes as a whole file of counters.
func FuzzCounters(f *testing.F) {
	whole := withHead(counters(f))
	f.Add(whole)
	f.Add(whole[:headSize])
	f.Add(whole[:headSize-1])
	f.Add([]byte(magic))
	many := append([]byte(nil), whole...)
	binary.NativeEndian.PutUint32(many[8:], 1<<31)
	f.Add(many)
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "one"+countersExtension)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		is, err := readCounters(path)
		if err != nil && !errors.Is(err, errNotCounters) {
			t.Fatalf("error of no known kind: %v", err)
		}
		if len(is.causes) > maxCauses {
			t.Fatalf("%d causes", len(is.causes))
		}
		for _, s := range is.slots {
			if instrument, day, ok := s.key(); !ok || instrument == "" || day == "" {
				t.Fatalf("a slot of %q, %q", instrument, day)
			}
		}
	})
}

// counters are the slots of a file that a gateway wrote.
func counters(f *testing.F) []byte {
	f.Helper()
	path := filepath.Join(f.TempDir(), "one"+countersExtension)
	c, err := createCounters(path)
	if err != nil {
		f.Fatal(err)
	}
	s, err := c.take("camera", "2026-11-21", wire.Totals{})
	if err != nil {
		f.Fatal(err)
	}
	s.add(objectsBegun, 5)
	s.change(func(r *received) { r.objects = 3 })
	s.add(unfinishedFirst+counter(c.cause(wire.CauseReset)), 1)
	if err := c.close(); err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	for at := headSize; at+slotSize <= len(data); at += slotSize {
		if data[at] != 0 {
			return data[at : at+slotSize]
		}
	}
	f.Fatal("no slot is written")
	return nil
}

// withHead puts slots behind the head of a file with two causes: so a fuzzer need
// not find 64 KiB.
func withHead(slots []byte) []byte {
	head := make([]byte, headSize, headSize+len(slots))
	copy(head, magic)
	binary.NativeEndian.PutUint32(head[8:], 2)
	copy(head[causesAt:], wire.CauseReset)
	copy(head[causesAt+causeSize:], wire.CauseKernelBuffer)
	return append(head, slots...)
}
