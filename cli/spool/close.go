// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"cmp"
	"maps"
	"slices"

	"github.com/substorm/substorm/internal/wire"
)

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
	// archived is what other pods archived of the spool, from copies.
	archived count
	// changed are the entries of what the pod received that change, by their day.
	changed map[instrumentDay]wire.LedgerEntry
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

// archived is what the manifests list of a day that a pod received.
type archived struct {
	// announced is by incarnation, brought what other pods archived of that, from copies.
	announced map[string]wire.Totals
	brought   count
}

// closeLedger says how to close the ledger of a pod, given what the pod received and what of that is archived: the rest is lost. Objects
// of the pod's report that no entry holds, because JetStream was away when they were received, are lost on the day of that report, for an
// unknown instrument.
func closeLedger(received map[instrumentDay]wire.LedgerEntry, stored map[instrumentDay]archived, r report) closing {
	c := closing{changed: map[instrumentDay]wire.LedgerEntry{}}
	days := map[instrumentDay]bool{}
	for at := range received {
		days[at] = true
	}
	for at := range stored {
		days[at] = true
	}
	var known count // of what was in the spool
	for _, at := range slices.SortedFunc(maps.Keys(days), byDay) {
		known = known.plus(c.closeDay(at, received[at], stored[at]))
		if at.Day >= r.first {
			known = known.plus(stored[at].brought)
			known.Objects += received[at].Sum().Unfinished[wire.CauseSpoolAbandoned] // of a run that did not come to its end
			c.archived = c.archived.plus(stored[at].brought)
		}
	}
	if rest := r.less(known); rest.Objects > 0 {
		c.addUnknown(instrumentDay{wire.UnknownInstrument, r.day}, received, rest, r.incarnation)
	}
	return c
}

func byDay(a, b instrumentDay) int {
	return cmp.Or(cmp.Compare(a.Instrument, b.Instrument), cmp.Compare(a.Day, b.Day))
}

// missing is what was received and is not archived.
func missing(received wire.LedgerEntry, announced map[string]wire.Totals) (count, wire.Digest) {
	r := wire.Reconcile(received.Incarnations, announced, wire.Totals{})
	a := wire.LedgerEntry{Incarnations: announced}.Sum()
	return count{r.Objects, r.ObjectBytes}.less(count{r.Resolved, r.ResolvedBytes}).less(count{a.Objects, a.ObjectBytes}), r.Digest.Minus(a.Digest)
}

// closeDay names what is lost of a day, and returns it.
func (c *closing) closeDay(at instrumentDay, received wire.LedgerEntry, stored archived) count {
	lost, digest := missing(received, stored.announced)
	if lost.Objects == 0 {
		return count{}
	}
	last := ""
	for incarnation, t := range received.Incarnations {
		if t.Objects > 0 {
			last = max(last, incarnation)
		}
	}
	e := clone(received)
	t := abandon(e.Incarnations[last], lost)
	t.Resolved += lost.Objects
	t.ResolvedBytes += lost.Bytes
	t.Digest = t.Digest.Minus(digest)
	e.Incarnations[last] = t
	c.changed[at] = e
	c.lost = append(c.lost, loss{at, lost})
	return lost
}

// abandon names a loss.
func abandon(t wire.Totals, n count) wire.Totals {
	t.Unfinished = maps.Clone(t.Unfinished)
	if t.Unfinished == nil {
		t.Unfinished = map[wire.Cause]uint64{}
	}
	t.Unfinished[wire.CauseSpoolAbandoned] += n.Objects
	t.UnfinishedBytes += n.Bytes
	return t
}

func (c *closing) addUnknown(at instrumentDay, received map[instrumentDay]wire.LedgerEntry, n count, incarnation string) {
	e := clone(received[at])
	e.Incarnations[incarnation] = abandon(e.Incarnations[incarnation], n)
	c.changed[at] = e
	c.lost = append(c.lost, loss{at, n})
}

func clone(e wire.LedgerEntry) wire.LedgerEntry {
	e.Incarnations = maps.Clone(e.Incarnations)
	if e.Incarnations == nil {
		e.Incarnations = map[string]wire.Totals{}
	}
	return e
}
