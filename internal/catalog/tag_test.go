// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"testing"

	"github.com/substorm/substorm/internal/wire"
)

// A tag names the files of a day and the notices laid over them. A Site that was restored from a backup gives the sequences of the notices that it lost
// to others, which it took at another time.
func TestTagOf(t *testing.T) {
	t.Parallel()
	fresh := []*item{{sequence: 7, at: 70}, {sequence: 8, at: 80}, {sequence: 1 << 40, at: 90}}
	for _, sum := range []wire.RootDay{{Day: "2026-11-18"}, {Day: "2026-11-18", Version: 3}, {Day: "2026-11-18", Version: 1, Parts: wire.PartNumbers{{1, 1440}, {1442, 1442}}}} {
		for _, over := range [][]*item{nil, fresh[:1], fresh} {
			text := fmt.Sprintf("%s %d %v", sum.Day, sum.Version, sum.Parts)
			if len(over) > 0 {
				text += fmt.Sprintf(" %s %d %d %d %d", "19aa", over[0].sequence, over[0].at, over[len(over)-1].sequence, over[len(over)-1].at)
			}
			hash := sha256.Sum256([]byte(text))
			if got, want := tagOf(sum, "19aa", over), hex.EncodeToString(hash[:12]); got != want {
				t.Errorf("%s: %s, want %s", text, got, want)
			}
		}
	}
	before, restored := []*item{{sequence: 7, at: 70}}, []*item{{sequence: 7, at: 71}}
	if day := (wire.RootDay{Day: "2026-11-18"}); tagOf(day, "19aa", before) == tagOf(day, "19aa", restored) {
		t.Error("a day has one tag with either of two notices")
	}
}

// A restored archive gives the number of a root again: the tag of the instrument tells both roots apart.
func TestInstrumentTagOfRestored(t *testing.T) {
	t.Parallel()
	c := New(Config{Site: site, Log: slog.New(slog.DiscardHandler)})
	tag := func(entry wire.IndexEntry) string {
		c.index.entries[camera] = entry
		return c.instrumentTag(camera)
	}
	before, restored := wire.IndexEntry{Root: 7, RootIncarnation: "19aa"}, wire.IndexEntry{Root: 7, RootIncarnation: "19bb"}
	if tag(before) == tag(restored) {
		t.Error("two roots with one number have one tag")
	}
	if again := before; tag(before) != tag(again) {
		t.Error("a root has two tags")
	}
}
