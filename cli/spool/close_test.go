// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
)

// lives are the totals of incarnations a, b, …, of objects of ten bytes each.
func lives(objects ...uint64) wire.LedgerEntry {
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

func TestCloseLedger(t *testing.T) {
	camera := instrumentDay{"camera", "2026-11-21"}
	radar := instrumentDay{"radar", "2026-11-20"}
	unknown := instrumentDay{wire.UnknownInstrument, "2026-11-21"}
	day := func(received, stored, announced wire.LedgerEntry) columns {
		return columns{wire.StepReceived: received, wire.StepStored: stored, wire.StepAnnounced: announced}
	}
	for name, c := range map[string]struct {
		ledger   map[instrumentDay]columns
		brought  map[instrumentDay]wire.Totals
		reported uint64
		lost     []loss
		home     uint64
	}{
		"nothing is in the spool": {
			ledger: map[instrumentDay]columns{camera: day(lives(5), lives(5), lives(5))},
		},
		"all of it is lost": {
			ledger:   map[instrumentDay]columns{camera: day(lives(5, 9), lives(5, 6), lives(5, 6)), radar: day(lives(3), lives(1), lives(1))},
			reported: 5,
			lost:     []loss{{camera, tens(3)}, {radar, tens(2)}},
		},
		"some is stored, and the sweep finds it": {
			ledger:   map[instrumentDay]columns{camera: day(lives(10), lives(8), lives(6))},
			reported: 4, lost: []loss{{camera, tens(2)}}, home: 2,
		},
		"a peer brought home a part": {
			ledger:   map[instrumentDay]columns{camera: day(lives(10), lives(6), lives(6))},
			brought:  map[instrumentDay]wire.Totals{camera: total(3)},
			reported: 4, lost: []loss{{camera, tens(1)}}, home: 3,
		},
		"a peer brought home everything": {
			ledger:   map[instrumentDay]columns{camera: day(lives(10), lives(6), lives(6))},
			brought:  map[instrumentDay]wire.Totals{camera: total(4)},
			reported: 4, home: 4,
		},
		"JetStream was away, and the columns know nothing of it": {
			ledger:   map[instrumentDay]columns{camera: day(lives(6), lives(6), lives(6))},
			reported: 4, lost: []loss{{unknown, tens(4)}},
		},
		"the same, and a peer brought home three": {
			ledger:   map[instrumentDay]columns{camera: day(lives(6), lives(6), lives(6))},
			brought:  map[instrumentDay]wire.Totals{camera: total(2), radar: total(1)},
			reported: 4, lost: []loss{{unknown, tens(1)}}, home: 3,
		},
		"the columns know more than the last report": {
			ledger:   map[instrumentDay]columns{camera: day(lives(9), lives(6), lives(6))},
			reported: 1, lost: []loss{{camera, tens(3)}},
		},
	} {
		r := report{count: tens(c.reported), day: "2026-11-21", first: "2026-11-20", incarnation: "b"}
		got := closeLedger(c.ledger, c.brought, r)
		if diff := cmp.Diff(c.lost, got.lost, cmp.AllowUnexported(loss{})); diff != "" {
			t.Errorf("%s: lost (-want +got):\n%s", name, diff)
		}
		if got.home != tens(c.home) {
			t.Errorf("%s: %+v are at home, want %+v", name, got.home, tens(c.home))
		}
		closed := map[instrumentDay]columns{}
		var named uint64
		for at, was := range c.ledger {
			closed[at] = was
		}
		for at, steps := range got.changed {
			is := columns{}
			for step, e := range closed[at] {
				is[step] = e
			}
			for step, e := range steps {
				is[step] = e
			}
			closed[at] = is
		}
		for at, is := range closed {
			r, s, a := is[wire.StepReceived].Sum(), is[wire.StepStored].Sum(), is[wire.StepAnnounced].Sum()
			named += r.Unfinished[wire.CauseSpoolAbandoned]
			if r.Objects != a.Objects || s.Objects != a.Objects || r.ObjectBytes != a.ObjectBytes || r.Digest != a.Digest || s.Digest != a.Digest {
				t.Errorf("%s: %v does not agree: %+v, %+v, %+v", name, at, r, s, a)
			}
		}
		if sum := got.total(); named != sum.Objects {
			t.Errorf("%s: the ledger names %d lost objects, and %d are", name, named, sum.Objects)
		}
		// A second run, after one that ended before the report was removed, adds
		// nothing; only what the sweep was to find is then named twice.
		if swept := c.home > 0 && c.brought == nil; swept {
			continue
		}
		if again := closeLedger(closed, c.brought, r); len(again.lost) > 0 || len(again.changed) > 0 {
			t.Errorf("%s: a second run loses %+v", name, again.lost)
		}
	}
}
