// SPDX-License-Identifier: Apache-2.0

package hapi

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/substorm/substorm/internal/decode"
	"github.com/substorm/substorm/internal/wire"
)

// TestReachProperty: each sample between two instants is found, whatever fractions of a
// second these have, and whatever the times of its record were cut to.
func TestReachProperty(t *testing.T) {
	origin := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	steps := map[string]time.Duration{wire.PrecisionSeconds: time.Second, wire.PrecisionMilliseconds: time.Millisecond}
	precisions := slices.Sorted(maps.Keys(steps))
	sets := map[string]*dataset{}
	for _, p := range precisions {
		sets[p] = newPairs(t, 0)
		sets[p].channel.Time.Precision = p
		var err error
		if sets[p].decoder, err = decode.New(sets[p].channel); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		precision := rapid.SampledFrom(precisions).Draw(t, "precision")
		step, was := steps[precision], steps[rapid.SampledFrom(precisions).Draw(t, "was")]
		delay := time.Duration(rapid.IntRange(0, 2000).Draw(t, "delay")) * time.Millisecond
		d := *sets[precision]
		d.channel.Time.MaxDelayMillis = delay.Milliseconds()
		from := origin.Add(time.Duration(rapid.IntRange(0, 12_000).Draw(t, "from")) * 500 * time.Microsecond)
		to := from.Add(time.Duration(rapid.IntRange(1, 12_000).Draw(t, "span")) * 500 * time.Microsecond)
		contents, want := map[string][]byte{}, map[string]bool{}
		s := &shelf{content: func(r wire.Record) []byte { return contents[r.ID] }}
		for i := range rapid.IntRange(1, 8).Draw(t, "objects") {
			r := pairRecord(fmt.Sprintf("object-%02d", i), origin.Add(time.Hour))
			decoded := rapid.Bool().Draw(t, "decoded") // as it was archived
			named := origin.Add(time.Duration(rapid.IntRange(0, 6000).Draw(t, "named")) * time.Millisecond)
			for range rapid.IntRange(1, 6).Draw(t, "pairs") {
				at := named.Add(time.Duration(rapid.IntRange(-int(delay/time.Millisecond), int(delay/time.Millisecond)).Draw(t, "at")) * time.Millisecond)
				contents[r.ID] = appendPair(contents[r.ID], at.UnixMilli(), 1)
				if told := at.Truncate(step); !told.Before(from) && told.Before(to) {
					want[told.Format(time.StampNano)] = true
				}
				cut := at.Truncate(was)
				if !decoded {
					cut = named
				}
				if r.ObservedFrom == nil || cut.Before(*r.ObservedFrom) {
					r.ObservedFrom = &cut
				}
				if r.ObservedTo == nil || cut.After(*r.ObservedTo) {
					r.ObservedTo = &cut
				}
			}
			if r.TimeSource = wire.TimeSourceName; decoded {
				r.TimeSource = wire.TimeSourcePayload
			}
			s.records = append(s.records, r)
		}
		m := newMerger(s, newRecent(defaultRecent), &d, from.UnixNano(), to.UnixNano(), defaultMemory)
		defer m.end()
		var got []string
		for {
			row, ok, err := m.next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			got = append(got, time.Unix(0, timeOf(row)).UTC().Format(time.StampNano))
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), got); diff != "" || m.distant > 0 {
			t.Fatalf("%d distant (-want +got):\n%s", m.distant, diff)
		}
	})
}
