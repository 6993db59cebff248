// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/substorm/substorm/internal/wire"
)

var (
	made   = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	remade = made.Add(time.Minute)
)

func TestJudge(t *testing.T) {
	was := wire.DeliveryPlace{Epoch: "a", Created: made, Next: 101, Last: 150, Waiting: 30}
	for name, c := range map[string]struct {
		was  wire.DeliveryPlace
		is   sighting
		want wire.DeliveryPlace
		lost *missing
	}{
		"first look": {
			is:   sighting{Epoch: "a", First: 40, Last: 150, Created: made, Floor: 100, Waiting: 30},
			want: was,
		},
		"first look at one that nothing was asked of": {
			is:   sighting{Epoch: "a", First: 40, Last: 150, Created: made, Waiting: 111},
			want: wire.DeliveryPlace{Epoch: "a", Created: made, Next: 40, Last: 150, Waiting: 111},
		},
		"it went on": {
			was: was, is: sighting{Epoch: "a", First: 40, Last: 160, Created: made, Floor: 120, Waiting: 20},
			want: wire.DeliveryPlace{Epoch: "a", Created: made, Next: 121, Last: 160, Waiting: 20},
		},
		"nothing waits: all up to the last look is done": {
			was: was, is: sighting{Epoch: "a", First: 101, Last: 170, Created: made, Floor: 120},
			want: wire.DeliveryPlace{Epoch: "a", Created: made, Next: 151, Last: 170},
		},
		"the first that waits lies further on, others are none of its": {
			was: was, is: sighting{Epoch: "a", First: 101, Last: 170, Created: made, Floor: 100, Waiting: 2, Found: 140},
			want: wire.DeliveryPlace{Epoch: "a", Created: made, Next: 140, Waits: true, Last: 170, Waiting: 2},
		},
		"what waited is gone from behind the stream's first": {
			was: was, is: sighting{Epoch: "a", First: 40, Last: 170, Created: made, Floor: 130, Waiting: 30, Found: 141, Gone: true},
			want: wire.DeliveryPlace{Epoch: "a", Created: made, Next: 141, Waits: true, Last: 170, Waiting: 30},
			lost: &missing{Epoch: "a", From: 101, To: 140, Count: 40, Reason: wire.GapRetention},
		},
		"all that waited is gone from behind the stream's first": {
			was: was, is: sighting{Epoch: "a", First: 40, Last: 170, Created: made, Floor: 100, Gone: true},
			want: wire.DeliveryPlace{Epoch: "a", Created: made, Next: 151, Last: 170},
			lost: &missing{Epoch: "a", From: 101, To: 150, Count: 50, Reason: wire.GapRetention},
		},
		"what waited is gone, and what is left is not known": {
			was: was, is: sighting{Epoch: "a", First: 40, Last: 170, Created: made, Floor: 130, Waiting: 30, Gone: true}, want: was,
		},
		"a replica did not have it": {
			was: was, is: sighting{Epoch: "a", First: 40, Last: 170, Created: made, Floor: 100, Waiting: 30, Found: 101, Gone: true},
			want: wire.DeliveryPlace{Epoch: "a", Created: made, Next: 101, Waits: true, Last: 170, Waiting: 30},
		},
		"what it acknowledged is trimmed": {
			was: was, is: sighting{Epoch: "a", First: 101, Last: 170, Created: made, Floor: 100, Waiting: 40},
			want: wire.DeliveryPlace{Epoch: "a", Created: made, Next: 101, Last: 170, Waiting: 40},
		},
		"more is trimmed": {
			was: was, is: sighting{Epoch: "a", First: 131, Last: 170, Created: made, Floor: 130, Waiting: 40, Found: 160},
			want: wire.DeliveryPlace{Epoch: "a", Created: made, Next: 131, Last: 170, Waiting: 40},
			lost: &missing{Epoch: "a", From: 101, To: 130, Count: 30, Reason: wire.GapRetention},
		},
		"trimmed by limits, which leave the floor": {
			was: was, is: sighting{Epoch: "a", First: 131, Last: 170, Created: made, Floor: 100, Waiting: 40},
			want: wire.DeliveryPlace{Epoch: "a", Created: made, Next: 131, Last: 170, Waiting: 40},
			lost: &missing{Epoch: "a", From: 101, To: 130, Count: 30, Reason: wire.GapRetention},
		},
		"all is purged": {
			was: was, is: sighting{Epoch: "a", First: 171, Last: 170, Created: made, Floor: 170},
			want: wire.DeliveryPlace{Epoch: "a", Created: made, Next: 171, Last: 170},
			lost: &missing{Epoch: "a", From: 101, To: 170, Count: 70, Reason: wire.GapRetention},
		},
		"the durable was made anew from its place": {
			was: was, is: sighting{Epoch: "a", First: 40, Last: 170, Created: remade, Start: 101, Floor: 100, Waiting: 70},
			want: wire.DeliveryPlace{Epoch: "a", Created: remade, Next: 101, Last: 170, Waiting: 70},
			lost: &missing{Epoch: "a", From: 101, To: 100, Reason: wire.GapConsumerDeleted},
		},
		"the durable was made anew behind what it acknowledged since": {
			was: was, is: sighting{Epoch: "a", First: 40, Last: 170, Created: remade, Start: 106, Acknowledged: 105, Floor: 105, Waiting: 65},
			want: wire.DeliveryPlace{Epoch: "a", Created: remade, Next: 106, Last: 170, Waiting: 65},
			lost: &missing{Epoch: "a", From: 106, To: 105, Reason: wire.GapConsumerDeleted},
		},
		"the durable was made anew behind what a purge may have taken": {
			was: was, is: sighting{Epoch: "a", First: 104, Last: 170, Created: remade, Start: 106, Acknowledged: 105, Floor: 105, Waiting: 65},
			want: wire.DeliveryPlace{Epoch: "a", Created: remade, Next: 106, Last: 170, Waiting: 65},
			lost: &missing{Epoch: "a", From: 101, To: 105, Count: 5, Reason: wire.GapConsumerDeleted},
		},
		"the durable was made anew at the end": {
			was: was, is: sighting{Epoch: "a", First: 40, Last: 170, Created: remade, Floor: 170},
			want: wire.DeliveryPlace{Epoch: "a", Created: remade, Next: 171, Last: 170},
			lost: &missing{Epoch: "a", From: 101, To: 170, Count: 70, Reason: wire.GapConsumerDeleted},
		},
		"the durable was made anew after what it had waited for left": {
			was: was, is: sighting{Epoch: "a", First: 111, Last: 170, Created: remade, Start: 1, Floor: 110, Waiting: 60},
			want: wire.DeliveryPlace{Epoch: "a", Created: remade, Next: 111, Last: 170, Waiting: 60},
			lost: &missing{Epoch: "a", From: 101, To: 110, Count: 10, Reason: wire.GapConsumerDeleted},
		},
		"the stream was made anew": {
			was: was, is: sighting{Epoch: "b", First: 1, Last: 5, Created: remade, Start: 1, Waiting: 5},
			want: wire.DeliveryPlace{Epoch: "b", Created: remade, Next: 1, Last: 5, Waiting: 5},
			lost: &missing{Epoch: "a", From: 101, To: 150, Count: 30, Reason: wire.GapStreamRecreated},
		},
		"the stream was made anew, and nothing waited": {
			was: wire.DeliveryPlace{Epoch: "a", Created: made, Next: 151, Last: 150},
			is:  sighting{Epoch: "b", First: 1, Created: remade, Start: 1}, want: wire.DeliveryPlace{Epoch: "b", Created: remade, Next: 1},
			lost: &missing{Epoch: "a", From: 151, To: 150, Reason: wire.GapStreamRecreated},
		},
	} {
		got, lost := compareSighting(c.was, c.is)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: place (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(c.lost, lost); diff != "" {
			t.Errorf("%s: missing (-want +got):\n%s", name, diff)
		}
	}
}

// Whatever is published, acknowledged and purged between looks: what left before it
// was acknowledged is in a gap record, and what is in one left since the last look but one.
func TestJudgeMissesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var place wire.DeliveryPlace
		first, last, floor := uint64(1), uint64(0), uint64(0)
		lost, told := map[uint64]bool{}, map[uint64]bool{}
		for range rapid.IntRange(1, 40).Draw(t, "looks") {
			for range rapid.IntRange(0, 4).Draw(t, "steps") {
				switch rapid.IntRange(0, 2).Draw(t, "what") {
				case 0:
					last += uint64(rapid.IntRange(0, 10).Draw(t, "published"))
				case 1:
					floor = rapid.Uint64Range(floor, last).Draw(t, "acknowledged")
				case 2:
					to := rapid.Uint64Range(first, last+1).Draw(t, "first")
					for s := max(first, floor+1); s < to && place.Epoch != ""; s++ {
						lost[s] = true
					}
					first = to
					if rapid.Bool().Draw(t, "by a purge") || last < to {
						floor = max(floor, to-1)
					}
				}
			}
			waiting := last - max(floor, first-1)
			var m *missing
			place, m = compareSighting(place, sighting{Epoch: "a", First: first, Last: last, Created: made, Floor: floor, Waiting: waiting})
			if m != nil {
				for s := m.From; s <= m.To; s++ {
					if told[s] {
						t.Fatalf("%d is told of twice", s)
					}
					told[s] = true
				}
			}
			for s := range lost {
				if !told[s] {
					t.Fatalf("%d is lost and nobody was told; place %+v", s, place)
				}
			}
			floor = max(floor, first-1) // a durable with nothing waiting acknowledges nothing
		}
	})
}

// The list of gaps that wait to be reported is bounded and loses nothing: gaps of one stream
// that follow on each other are one, and a record that left unread comes before what followed
// it.
func TestUntold(t *testing.T) {
	gap := func(stream string, from, to uint64, reason wire.GapReason) wire.Gap {
		return missing{Epoch: "a", From: from, To: to, Count: to - from + 1, Reason: reason}.record("model", stream, made)
	}
	var untold []wire.Gap
	untold = addGap(untold, gap("N", 5, 9, wire.GapRetention))
	untold = addGap(untold, gap("N", 10, 12, wire.GapRetention))
	untold = addGap(untold, gap("O", 1, 2, wire.GapRetention))
	untold = retell(untold, gap("N", 2, 4, wire.GapRetention))
	if diff := cmp.Diff([]wire.Gap{gap("N", 2, 12, wire.GapRetention), gap("O", 1, 2, wire.GapRetention)}, untold); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	total := uint64(13)
	for i := range uint64(100) {
		reasons := []wire.GapReason{wire.GapRetention, wire.GapConsumerDeleted}
		untold = addGap(untold, gap("N", 20+i, 20+i, reasons[i%2]))
		total++
		sum := uint64(0)
		for _, g := range untold {
			sum += g.Count
		}
		if sum != total || len(untold) > maxUntold {
			t.Fatalf("%d gaps count %d messages, want %d", len(untold), sum, total)
		}
	}
}
