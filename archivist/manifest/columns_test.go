// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/manifest/manifesttest"
	"github.com/substorm/substorm/internal/wire"
)

// randomLines are what a writer may write of a day, in this order: objects that are listed, some as duplicates, and what
// becomes of them.
func randomLines(random *rand.Rand, start time.Time) (lines []wire.Record) {
	var listed []wire.Record
	for i := range 60 {
		r := wire.Record{ReceivedAt: start.Add(time.Duration(i) * 17 * time.Minute), Size: int64(1 + random.IntN(100)), State: wire.StateCurrent,
			Digest: wire.Digest{31: byte(i + 1)}, TimeSource: wire.TimeSourceReceived, Completeness: wire.CompletenessVerified,
			Gateway: "north-0", Incarnation: fmt.Sprint("incarnation-", random.IntN(3))}
		r.Key = wire.RawKey("hub", "camera", r.ReceivedAt, r.Digest)
		r.ID = r.Key
		switch random.IntN(6) {
		case 0:
			r.State, r.DuplicateOf, r.StoredAgain = wire.StateDuplicate, "another", random.IntN(3) == 0
		case 1:
			r.Segment = &wire.SegmentRange{Channel: "raw", Epoch: "1", First: uint64(i), Last: uint64(i), Messages: 1, Datagrams: 5, DatagramBytes: 50}
		}
		lines, listed = append(lines, r), append(listed, r)
		was := &listed[random.IntN(len(listed))]
		if was.Segment != nil {
			continue
		}
		at := r.ReceivedAt
		switch changed := *was; {
		case was.State == wire.StateDuplicate && random.IntN(3) == 0: // its original is gone
			changed.ID, changed.State, changed.DuplicateOf = wire.OrphanID(wire.Notice{Site: "hub", Instrument: "camera", Record: changed}), wire.StateCurrent, ""
			was.State = "" // once
			lines = append(lines, changed)
		case was.State == wire.StateCurrent && random.IntN(3) == 0: // an equal object with a name came
			changed.State, changed.DuplicateOf, was.State = wire.StateDuplicate, "named", ""
			lines = append(lines, changed)
		case was.State == wire.StateCurrent && random.IntN(2) == 0:
			changed.State, changed.RetractedAt, was.State = wire.StateRetracted, &at, wire.StateRetracted
			lines = append(lines, changed)
		case was.State == wire.StateRetracted:
			changed.State, changed.RestoredAt, was.State = wire.StateCurrent, &at, wire.StateCurrent
			lines = append(lines, changed)
		}
	}
	return lines
}

// The lines of a day give the ledger the counts of the day's objects, each
// counted once, however much of it is compacted.
func TestColumnsOfLines(t *testing.T) {
	a := manifesttest.New(t, "hub")
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		start := time.Date(2026, 11, 1+int(seed), 0, 0, 0, 0, time.UTC)
		day := wire.DayOf(start)
		lines := randomLines(random, start)
		for part := 1; len(lines) > 0; part++ {
			n := 1 + random.IntN(len(lines))
			a.PutPart("camera", day, part, lines[:n]...)
			if lines = lines[n:]; random.IntN(3) == 0 {
				a.Compact("camera", day)
			}
		}
		var want read.Columns
		for r, err := range read.Records(t.Context(), a.Store, "hub", "camera", day) {
			if err != nil {
				t.Fatal(err)
			}
			if r.Segment == nil {
				want.Add(&r)
			}
		}
		for _, most := range []int{1000, 3} { // at once, and share by share
			counted := lineTally{max: most}
			if _, err := readDay(t.Context(), a.Store, "hub", dayKey{"camera", day}, 0, 1000, nil, &counted); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, counted.Columns, cmpopts.EquateEmpty()); diff != "" || len(want.Announced) == 0 || want.Duplicates.Objects == 0 {
				t.Fatalf("seed %d, %d at a time (-records +lines):\n%s", seed, most, diff)
			}
		}
	}
}

// The memory that is used while a day is counted is bounded, however many of its objects are duplicates.
func TestMemoryOfManyDuplicates(t *testing.T) {
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	counted := lineTally{max: maxDuplicates}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, most := heap(), uint64(0)
	for i := range 400_000 {
		r := wire.Record{ReceivedAt: start.Add(time.Duration(i) * 80 * time.Millisecond), Size: 100, State: wire.StateDuplicate, DuplicateOf: "x",
			Digest: wire.Digest{byte(i), byte(i >> 8), byte(i >> 16)}, Gateway: "north-0", Incarnation: "incarnation-1"}
		r.ID = wire.RawKey("hub", "camera", r.ReceivedAt, r.Digest)
		counted.part(&r, read.HashID(r.ID))
		if i == maxDuplicates-1 || i == 399_999 {
			most = max(most, heap())
		}
	}
	if grown := int64(most - before); grown > 16<<20 {
		t.Errorf("it takes %d MiB", grown>>20)
	}
	runtime.KeepAlive(&counted)
}
