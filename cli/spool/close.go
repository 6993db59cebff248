// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"cmp"
	"maps"
	"slices"

	"github.com/substorm/substorm/internal/wire"
)

// columns are what one pod wrote into the ledger of one instrument's day, by
// step; each with its incarnations.
type columns map[wire.Step]wire.LedgerEntry

// instrumentDay names a line of the ledger.
type instrumentDay struct {
	Instrument string   `json:"instrument"`
	Day        wire.Day `json:"day"`
}

// count is of objects and their bytes.
type count struct {
	Objects uint64 `json:"objects"`
	Bytes   uint64 `json:"bytes"`
}

func (c count) plus(o count) count { return count{c.Objects + o.Objects, c.Bytes + o.Bytes} }

// less is what of c is more than o.
func (c count) less(o count) count {
	return count{c.Objects - min(c.Objects, o.Objects), c.Bytes - min(c.Bytes, o.Bytes)}
}

// loss is what is lost of one instrument's day with a pod's spool.
type loss struct {
	instrumentDay
	count
}

// closing is how the ledger of a pod that never returns is closed.
type closing struct {
	// lost is what was receipted and is in no archive.
	lost []loss
	// home is what waited in the spool and is, or will be, in the archive.
	home count
	// changed are the entries to write, by their day; only those that change.
	changed map[instrumentDay]columns
}

func (c *closing) total() (sum count) {
	for _, l := range c.lost {
		sum = sum.plus(l.count)
	}
	return sum
}

// report is what a pod last said of its spool.
type report struct {
	count
	// day of the report, and first the day of the oldest object in the spool.
	day, first  wire.Day
	incarnation string
}

// broughtHome stands, in a pod's columns, for the lives of the pods that archived
// its objects from their copies.
const broughtHome = "brought"

// closeLedger says how to close the ledger of a pod: what is received and neither
// stored nor brought home by another pod, which had a copy, is lost. What of the
// pod's report no column holds, since JetStream was away when it was received, is
// lost on the day of that report, of an instrument that nobody knows.
func closeLedger(ledger map[instrumentDay]columns, brought map[instrumentDay]wire.Totals, r report) closing {
	c := closing{changed: map[instrumentDay]columns{}}
	days := maps.Clone(ledger)
	for at, b := range brought {
		if _, known := days[at]; !known && b.Objects > 0 {
			days[at] = columns{}
		}
	}
	var known count // of what was in the spool
	for _, at := range slices.SortedFunc(maps.Keys(days), byDay) {
		b := brought[at]
		waited := c.closeDay(at, days[at], b)
		if at.Day < r.first {
			b = wire.Totals{}
		}
		known = known.plus(waited).plus(count{b.Objects, b.ObjectBytes}.less(waited))
		if at.Day >= r.first {
			known.Objects += days[at][wire.StepReceived].Sum().Unfinished[wire.CauseSpoolAbandoned] // of a run that did not come to its end
		}
	}
	if rest := r.less(known); rest.Objects > 0 {
		c.addUnknown(instrumentDay{wire.UnknownInstrument, r.day}, ledger, rest, r.incarnation)
	}
	return c
}

func byDay(a, b instrumentDay) int {
	return cmp.Or(cmp.Compare(a.Instrument, b.Instrument), cmp.Compare(a.Day, b.Day))
}

// closeDay makes the columns agree, and names what is lost. It returns what waited
// to be announced.
func (c *closing) closeDay(at instrumentDay, was columns, brought wire.Totals) (waited count) {
	is := columns{}
	for _, step := range []wire.Step{wire.StepReceived, wire.StepStored, wire.StepAnnounced} {
		is[step] = clone(was[step])
	}
	var missing count
	last := ""
	for _, incarnation := range slices.Sorted(maps.Keys(was[wire.StepReceived].Incarnations)) {
		r, s, a := is.of(incarnation)
		if r.Objects <= a.Objects {
			continue
		}
		home := a
		if s.Objects > a.Objects { // the sweep announces it
			home = s
		}
		received, safe := count{r.Objects, r.ObjectBytes}, count{home.Objects, home.ObjectBytes}
		waited = waited.plus(received.less(count{a.Objects, a.ObjectBytes}))
		missing = missing.plus(received.less(safe))
		for step, t := range map[wire.Step]wire.Totals{wire.StepReceived: r, wire.StepStored: s, wire.StepAnnounced: a} {
			t.Objects, t.ObjectBytes, t.Digest = home.Objects, home.ObjectBytes, home.Digest
			is[step].Incarnations[incarnation] = t
		}
		last = incarnation
	}
	credited := was[wire.StepReceived].Incarnations[broughtHome]
	fresh := count{brought.Objects, brought.ObjectBytes}.less(count{credited.Objects, credited.ObjectBytes})
	lost := missing.less(fresh)
	c.home = c.home.plus(waited.less(lost)).plus(fresh.less(missing))
	if fresh.Objects > 0 {
		for step := range is {
			is[step].Incarnations[broughtHome] = brought
		}
	}
	if lost.Objects > 0 {
		is[wire.StepReceived].Incarnations[last] = abandon(is[wire.StepReceived].Incarnations[last], lost)
		c.lost = append(c.lost, loss{at, lost})
	}
	if waited.Objects > 0 || fresh.Objects > 0 {
		c.changed[at] = is
	}
	return waited
}

// of returns an incarnation's totals.
func (c columns) of(incarnation string) (received, stored, announced wire.Totals) {
	return c[wire.StepReceived].Incarnations[incarnation], c[wire.StepStored].Incarnations[incarnation], c[wire.StepAnnounced].Incarnations[incarnation]
}

// abandon names a loss.
func abandon(t wire.Totals, n count) wire.Totals {
	if n.Objects == 0 {
		return t
	}
	t.Unfinished = maps.Clone(t.Unfinished)
	if t.Unfinished == nil {
		t.Unfinished = map[wire.Cause]uint64{}
	}
	t.Unfinished[wire.CauseSpoolAbandoned] += n.Objects
	t.UnfinishedBytes += n.Bytes
	return t
}

func (c *closing) addUnknown(at instrumentDay, ledger map[instrumentDay]columns, n count, incarnation string) {
	e := clone(ledger[at][wire.StepReceived])
	e.Incarnations[incarnation] = abandon(e.Incarnations[incarnation], n)
	c.changed[at] = columns{wire.StepReceived: e}
	c.lost = append(c.lost, loss{at, n})
}

func clone(e wire.LedgerEntry) wire.LedgerEntry {
	e.Incarnations = maps.Clone(e.Incarnations)
	if e.Incarnations == nil {
		e.Incarnations = map[string]wire.Totals{}
	}
	return e
}
