// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func ofObjects(n uint64) Totals {
	return Totals{Objects: n, ObjectBytes: 10 * n, Digest: Digest{31: byte(n)}}
}

func with(t Totals, change func(*Totals)) Totals {
	change(&t)
	return t
}

func TestReconcile(t *testing.T) {
	unfinished := func(cause Cause, n uint64) func(*Totals) {
		return func(t *Totals) { t.Unfinished = map[Cause]uint64{cause: n} }
	}
	for name, c := range map[string]struct {
		received, announced map[string]Totals
		stored              Totals
		want                Totals
	}{
		"they agree": {
			received: map[string]Totals{"a": ofObjects(3), "b": ofObjects(2)}, announced: map[string]Totals{"a": ofObjects(3), "b": ofObjects(2)},
			want: ofObjects(5),
		},
		"what is not announced stays received": {
			received: map[string]Totals{"a": ofObjects(3)}, announced: map[string]Totals{"a": ofObjects(2)}, want: ofObjects(3),
		},
		"killed before it was counted": {
			received: map[string]Totals{"a": with(ofObjects(3), unfinished(CauseKilled, 2))}, announced: map[string]Totals{"a": ofObjects(4)},
			want: with(ofObjects(4), unfinished(CauseKilled, 1)),
		},
		"more than were under way": {
			received: map[string]Totals{"a": with(ofObjects(3), unfinished(CauseKilled, 1))}, announced: map[string]Totals{"a": ofObjects(5)},
			want: Totals{Objects: 4, ObjectBytes: 30, Digest: Digest{31: 3}},
		},
		"refused ones explain nothing": {
			received: map[string]Totals{"a": with(ofObjects(3), unfinished(CauseNameConflict, 2))}, announced: map[string]Totals{"a": ofObjects(4)},
			want: with(ofObjects(3), unfinished(CauseNameConflict, 2)),
		},
		"one incarnation's unfinished explain nothing of another's": {
			received:  map[string]Totals{"a": ofObjects(3), "b": with(ofObjects(1), unfinished(CauseKilled, 1))},
			announced: map[string]Totals{"a": ofObjects(4), "b": ofObjects(1)},
			want:      with(ofObjects(4), unfinished(CauseKilled, 1)),
		},
		"counters are lost": {
			received: map[string]Totals{"a": with(ofObjects(3), func(t *Totals) { t.Incomplete = true })}, announced: map[string]Totals{"a": ofObjects(7)},
			want: with(ofObjects(7), func(t *Totals) { t.Incomplete = true; t.Unfinished = nil }),
		},
		"an incarnation that nobody counted": {
			received: map[string]Totals{"a": ofObjects(1)}, announced: map[string]Totals{"a": ofObjects(1), "b": ofObjects(4)},
			want: with(ofObjects(5), func(t *Totals) { t.Incomplete = true }),
		},
		"resolved, and lost": {
			received:  map[string]Totals{"a": ofObjects(3), "b": {Resolved: 1, ResolvedBytes: 10, Unfinished: map[Cause]uint64{CauseCorrupt: 1}}},
			announced: map[string]Totals{"a": ofObjects(2)},
			want: with(ofObjects(3), func(t *Totals) {
				t.Resolved, t.ResolvedBytes, t.Unfinished = 1, 10, map[Cause]uint64{CauseCorrupt: 1}
			}),
		},
		"given up, and found": {
			received: map[string]Totals{"a": with(ofObjects(3), func(t *Totals) {
				t.Resolved, t.ResolvedBytes, t.Digest = 1, 10, Digest{31: 2}
				t.Unfinished = map[Cause]uint64{CauseSpoolAbandoned: 1}
			})},
			announced: map[string]Totals{"a": ofObjects(3)},
			want:      with(ofObjects(3), func(t *Totals) { t.Unfinished = map[Cause]uint64{} }),
		},
		"unknown datagrams are in the stream": {
			received: map[string]Totals{"a": {Datagrams: 10, DatagramBytes: 100, Unknown: 5}}, stored: Totals{Datagrams: 12, DatagramBytes: 120},
			want: Totals{Datagrams: 12, DatagramBytes: 120, Unknown: 3},
		},
		"some of them in no segment": {
			received: map[string]Totals{"a": {Datagrams: 10, DatagramBytes: 100, Unknown: 5}},
			stored:   Totals{Datagrams: 8, DatagramBytes: 80, Dropped: map[Cause]uint64{CauseUndecodable: 3}},
			want:     Totals{Datagrams: 11, DatagramBytes: 100, Unknown: 4},
		},
		"datagrams of a day that nobody counted": {
			stored: Totals{Datagrams: 12, DatagramBytes: 120}, want: Totals{Datagrams: 12, DatagramBytes: 120, Incomplete: true},
		},
		"more datagrams than anybody read": {
			received: map[string]Totals{"a": {Datagrams: 10, DatagramBytes: 100, Unknown: 1}}, stored: Totals{Datagrams: 12, DatagramBytes: 120},
			want: Totals{Datagrams: 11, DatagramBytes: 100},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := cmp.Diff(c.received, nil)
			if diff := cmp.Diff(c.want, Reconcile(c.received, c.announced, c.stored), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if cmp.Diff(c.received, nil) != before {
				t.Error("what was given is changed")
			}
		})
	}
}
