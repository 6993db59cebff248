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
	// home is what the pod had receipted that others brought home.
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

// closeLedger says how to close the ledger of a pod: what is received and neither
// stored nor brought home by another pod, which had a copy, is lost. What of the
// pod's report no column holds, since JetStream was away when it was received, is
// lost on the day of that report, of an instrument that nobody knows.
func closeLedger(ledger map[instrumentDay]columns, brought map[instrumentDay]count, r report) closing {
	c := closing{changed: map[instrumentDay]columns{}}
	var known count // of what was in the spool
	for _, at := range slices.SortedFunc(maps.Keys(ledger), byDay) {
		known = known.plus(c.closeDay(at, ledger[at], brought[at]))
		if at.Day >= r.first {
			known = known.plus(abandonedBefore(ledger[at]))
		}
	}
	for _, n := range brought {
		c.home = c.home.plus(n)
	}
	if rest := r.less(known.plus(c.unlisted(ledger, brought))); rest.Objects > 0 {
		c.addUnknown(instrumentDay{wire.UnknownInstrument, r.day}, ledger, rest, r.incarnation)
	}
	return c
}

// unlisted is what was brought home and no column says was received.
func (c *closing) unlisted(ledger map[instrumentDay]columns, brought map[instrumentDay]count) (sum count) {
	for at, n := range brought {
		received, announced := ledger[at][wire.StepReceived].Sum(), ledger[at][wire.StepAnnounced].Sum()
		waited := count{received.Objects, received.ObjectBytes}.less(count{announced.Objects, announced.ObjectBytes})
		sum = sum.plus(n.less(waited))
	}
	return sum
}

// abandonedBefore is what an earlier run, which did not come to its end, wrote.
func abandonedBefore(c columns) (n count) {
	n.Objects = c[wire.StepReceived].Sum().Unfinished[wire.CauseSpoolAbandoned]
	return n
}

func byDay(a, b instrumentDay) int {
	return cmp.Or(cmp.Compare(a.Instrument, b.Instrument), cmp.Compare(a.Day, b.Day))
}

// closeDay makes received and stored what announced is, and names what is lost.
// It returns what waited to be announced.
func (c *closing) closeDay(at instrumentDay, was columns, brought count) (waited count) {
	received, stored := clone(was[wire.StepReceived]), clone(was[wire.StepStored])
	var lost count
	for _, incarnation := range slices.Sorted(maps.Keys(received.Incarnations)) {
		r, a := received.Incarnations[incarnation], was[wire.StepAnnounced].Incarnations[incarnation]
		if r.Objects <= a.Objects {
			continue
		}
		announced := count{a.Objects, a.ObjectBytes}
		missing := count{r.Objects, r.ObjectBytes}.less(announced)
		s, storedAny := stored.Incarnations[incarnation]
		// What is stored and not announced is found by the sweep.
		swept := count{s.Objects, s.ObjectBytes}.less(announced)
		gone := missing.less(swept)
		c.home = c.home.plus(missing.less(gone))
		gone, brought = gone.less(brought), brought.less(gone)
		r.Objects, r.ObjectBytes, r.Digest = a.Objects, a.ObjectBytes, a.Digest
		received.Incarnations[incarnation] = abandon(r, gone)
		if storedAny {
			s.Objects, s.ObjectBytes, s.Digest = a.Objects, a.ObjectBytes, a.Digest
			stored.Incarnations[incarnation] = s
		}
		waited, lost = waited.plus(missing), lost.plus(gone)
	}
	if waited.Objects > 0 {
		c.changed[at] = columns{wire.StepReceived: received}
		if len(stored.Incarnations) > 0 {
			c.changed[at][wire.StepStored] = stored
		}
	}
	if lost.Objects > 0 {
		c.lost = append(c.lost, loss{at, lost})
	}
	return waited
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
