// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
)

// incarnations are the totals of incarnations a, b, …, of objects of ten bytes each.
func incarnations(objects ...uint64) wire.LedgerEntry {
	e := wire.LedgerEntry{Incarnations: map[string]wire.Totals{}}
	for i, n := range objects {
		e.Incarnations[string(rune('a'+i))] = total(n)
	}
	return e
}

func total(n uint64) wire.Totals {
	return wire.Totals{Objects: n, ObjectBytes: 10 * n, Digest: wire.Digest{31: byte(n)}}
}

func tens(n uint64) count { return count{n, 10 * n} }

// listed is what the manifests list of the same incarnations, some of it brought by others.
func listed(brought uint64, objects ...uint64) archived {
	return archived{announced: incarnations(objects...).Incarnations, brought: tens(brought)}
}

func TestCloseLedger(t *testing.T) {
	camera := instrumentDay{"camera", "2026-11-21"}
	radar := instrumentDay{"radar", "2026-11-20"}
	unknown := instrumentDay{wire.UnknownInstrument, "2026-11-21"}
	killed := total(8)
	killed.Unfinished = map[wire.Cause]uint64{wire.CauseKilled: 2}
	for name, c := range map[string]struct {
		received map[instrumentDay]wire.LedgerEntry
		is       map[instrumentDay]archived
		reported uint64
		lost     []loss
		archived uint64
	}{
		"nothing is in the spool": {
			received: map[instrumentDay]wire.LedgerEntry{camera: incarnations(5)},
			is:       map[instrumentDay]archived{camera: listed(0, 5)},
		},
		"all of it is lost": {
			received: map[instrumentDay]wire.LedgerEntry{camera: incarnations(5, 9), radar: incarnations(3)},
			is:       map[instrumentDay]archived{camera: listed(0, 5, 6), radar: listed(0, 1)},
			reported: 5,
			lost:     []loss{{camera, tens(3)}, {radar, tens(2)}},
		},
		"a day of which nothing is archived": {
			received: map[instrumentDay]wire.LedgerEntry{camera: incarnations(4)},
			reported: 4, lost: []loss{{camera, tens(4)}},
		},
		"what was announced at the kill is not lost": {
			received: map[instrumentDay]wire.LedgerEntry{camera: {Incarnations: map[string]wire.Totals{"a": killed, "b": total(3)}}},
			is:       map[instrumentDay]archived{camera: listed(0, 9, 2)},
			reported: 1, lost: []loss{{camera, tens(1)}},
		},
		"a peer archived a part": {
			received: map[instrumentDay]wire.LedgerEntry{camera: incarnations(10)},
			is:       map[instrumentDay]archived{camera: listed(3, 9)},
			reported: 4, lost: []loss{{camera, tens(1)}}, archived: 3,
		},
		"a peer archived everything": {
			received: map[instrumentDay]wire.LedgerEntry{camera: incarnations(10)},
			is:       map[instrumentDay]archived{camera: listed(4, 10)},
			reported: 4, archived: 4,
		},
		"JetStream was away, and the ledger knows nothing of it": {
			received: map[instrumentDay]wire.LedgerEntry{camera: incarnations(6)},
			is:       map[instrumentDay]archived{camera: listed(0, 6)},
			reported: 4, lost: []loss{{unknown, tens(4)}},
		},
		"the same, and a peer archived three": {
			received: map[instrumentDay]wire.LedgerEntry{camera: incarnations(6)},
			is:       map[instrumentDay]archived{camera: listed(2, 6, 2), radar: listed(1, 0, 1)},
			reported: 4, lost: []loss{{unknown, tens(1)}}, archived: 3,
		},
		"the ledger knows more than the last report": {
			received: map[instrumentDay]wire.LedgerEntry{camera: incarnations(9)},
			is:       map[instrumentDay]archived{camera: listed(0, 6)},
			reported: 1, lost: []loss{{camera, tens(3)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := report{count: tens(c.reported), day: "2026-11-21", first: "2026-11-20", incarnation: "b"}
			got := closeLedger(c.received, c.is, r)
			if diff := cmp.Diff(c.lost, got.lost, cmp.AllowUnexported(loss{})); diff != "" {
				t.Errorf("lost (-want +got):\n%s", diff)
			}
			if got.archived != tens(c.archived) {
				t.Errorf("%+v were archived by others, want %+v", got.archived, tens(c.archived))
			}
			closed := map[instrumentDay]wire.LedgerEntry{}
			for _, entries := range []map[instrumentDay]wire.LedgerEntry{c.received, got.changed} {
				for at, e := range entries {
					closed[at] = e
				}
			}
			var named uint64
			for at, e := range closed {
				r := wire.Reconcile(e.Incarnations, c.is[at].announced, wire.Totals{})
				a := wire.LedgerEntry{Incarnations: c.is[at].announced}.Sum()
				named += r.Unfinished[wire.CauseSpoolAbandoned]
				if r.Objects-r.Resolved != a.Objects || r.ObjectBytes-r.ResolvedBytes != a.ObjectBytes || r.Digest != a.Digest {
					t.Errorf("%v does not agree: %+v, %+v", at, r, a)
				}
			}
			if sum := got.total(); named != sum.Objects {
				t.Errorf("the ledger names %d lost objects, and %d are", named, sum.Objects)
			}
			// A second run, after one that ended before the report was removed, adds nothing.
			if again := closeLedger(closed, c.is, r); len(again.lost) > 0 || len(again.changed) > 0 {
				t.Errorf("a second run loses %+v", again.lost)
			}
		})
	}
}
