// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/substorm/substorm/internal/wire"
)

// FuzzFiles reads any bytes as what a previous incarnation left, and makes its
// totals final. A disk may return anything after a power cut: it ends, without a
// panic, and an error is one of the two that readers promise.
func FuzzFiles(f *testing.F) {
	checkpoint := []byte(`{"format":1,"from":{"observations":{"epoch":"1","sequence":4},"notices":{}},"first":7,` +
		`"settled":[{"instrument":"camera","day":"2026-11-21","objects":2,"objectBytes":20,"digest":"` + wire.Digest{1}.String() + `"}],` +
		`"spoolSeen":true,"spooled":{"camera":{"objects":1,"bytes":10}},"overlap":{"id":{"instrument":"camera","bytes":10}}}`)
	position := []byte(`{"observations":{"epoch":"1","sequence":3}}`)
	slots := counters(f)
	f.Add(checkpoint, slots, position)
	f.Add(checkpoint[:len(checkpoint)/2], slots[:slotSize/2], position[:5])
	f.Add([]byte(`{"format":1,"overlap":{"id":{"instrument":"camera","bytes":10}}}`), slots, []byte{})
	f.Add([]byte(`{"format":9}`), []byte{}, []byte(`null`))
	f.Add([]byte(`[]`), []byte{0}, []byte(`7`))
	f.Fuzz(func(t *testing.T, checkpoint, slots, position []byte) {
		dir := t.TempDir()
		for name, data := range map[string][]byte{"one" + checkpointExtension: checkpoint, "one" + countersExtension: withHead(slots), positionFile: position} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		previous, err := findPrevious(dir)
		if err == nil {
			_, err = startPosition(dir, previous)
		}
		if err != nil {
			if !errors.Is(err, wire.ErrMalformed) && !errors.Is(err, wire.ErrNewerFormat) {
				t.Fatalf("error of no known kind: %v", err)
			}
			return
		}
		r := newRecount(Config{}, previous)
		for _, p := range previous {
			for k, totals := range r.counts[p.incarnation].totals(p) {
				if _, err := (wire.LedgerEntry{Incarnations: map[string]wire.Totals{p.incarnation: totals}}).Encode(); err != nil {
					t.Fatalf("%+v: %v", k, err)
				}
			}
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
		slots, causes, err := readCounters(path)
		if err != nil && !errors.Is(err, errNotCounters) {
			t.Fatalf("error of no known kind: %v", err)
		}
		if len(causes) > maxCauses {
			t.Fatalf("%d causes", len(causes))
		}
		for _, s := range slots {
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
	s, err := c.take("camera", "2026-11-21")
	if err != nil {
		f.Fatal(err)
	}
	s.add(objectsBegun, 5)
	s.add(objectsReceived, 3)
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
