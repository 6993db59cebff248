// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/wire"
)

// Counters that a gateway left before there were guests are read like those of the present layout; and the longest name
// of a guest fits.
func TestCountersOfTheLayoutBefore(t *testing.T) {
	t.Parallel()
	const before = 64
	path := filepath.Join(t.TempDir(), "one"+countersExtension)
	c, err := createCounters(path)
	if err != nil {
		t.Fatal(err)
	}
	guest := wire.GuestName(strings.Repeat("a", 16), strings.Repeat("b", 63))
	for i, instrument := range []string{"camera", guest, "mag"} {
		s, err := c.take(instrument, "2026-11-21", wire.Totals{})
		if err != nil {
			t.Fatal(err)
		}
		s.add(objectsBegun, uint64(i+1))
		s.change(func(r *received) { r.objects = uint64(i + 1) })
		s.add(unfinishedFirst+counter(c.cause(wire.CauseReset)), 1)
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	old := slices.Clone(data[:headSize])
	copy(old, "SBSTLDG4")
	for at := headSize; at+slotSize <= len(data); at += slotSize {
		if int(data[at]) < before {
			old = append(append(old, data[at:at+before]...), data[at+nameSize:at+slotSize]...)
		}
	}
	for layout, want := range map[string]struct {
		data  []byte
		names []string
	}{"now": {data, []string{"camera", guest, "mag"}}, "before": {old, []string{"camera", "mag"}}} {
		if err := os.WriteFile(path, want.data, 0o600); err != nil {
			t.Fatal(err)
		}
		is, err := readCounters(path)
		if err != nil || !is.complete {
			t.Fatalf("%s: %v, complete %t", layout, err, is.complete)
		}
		totals := finalTotals(is.slots, is.causes)
		for _, name := range want.names {
			of := totals[dayKey{name, "2026-11-21"}]
			if of.Objects == 0 || of.Unfinished[wire.CauseReset] != 1 || len(totals) != len(want.names) {
				t.Errorf("%s: of %s %+v, of %d days", layout, name, of, len(totals))
			}
		}
	}
}
