// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"

	"github.com/substorm/substorm/internal/wire"
)

// Columns are those of the ledger that a day's manifest says, see wire.Step.
type Columns struct {
	// Announced has the objects by the incarnation that received them, Stored the datagrams
	// by channel.
	Announced, Stored map[string]wire.Totals
	Duplicates        wire.Totals
}

// Add counts an object or a segment, once. A duplicate that is listed as an object of its own since its
// original is gone (wire.OrphanID) was announced before, and is a duplicate no longer. A record that was
// stored again counts nowhere.
func (c *Columns) Add(r *wire.Record) {
	if r.StoredAgain {
		return
	}
	if s := r.Segment; s != nil {
		c.Stored = plus(c.Stored, cmp.Or(s.Channel, wire.UnknownChannel), s.Totals())
		return
	}
	if wire.IsOrphanID(r.ID) {
		c.Keep(r)
		return
	}
	c.Announced = plus(c.Announced, wire.LedgerIncarnation(r), one(r))
	if r.State == wire.StateDuplicate {
		c.MarkDuplicate(r)
	}
}

// Drop undoes Add of an object that is no duplicate: it was counted twice.
func (c *Columns) Drop(r *wire.Record) {
	if r.StoredAgain {
		return
	}
	if wire.IsOrphanID(r.ID) {
		c.MarkDuplicate(r)
		return
	}
	c.Announced[wire.LedgerIncarnation(r)] = minus(c.Announced[wire.LedgerIncarnation(r)], r)
}

// MarkDuplicate says of an object that was added that it duplicates another one.
func (c *Columns) MarkDuplicate(r *wire.Record) {
	if !r.StoredAgain {
		c.Duplicates = c.Duplicates.Plus(one(r))
	}
}

// Keep says that a duplicate is kept after all.
func (c *Columns) Keep(r *wire.Record) {
	if !r.StoredAgain {
		c.Duplicates = minus(c.Duplicates, r)
	}
}

// Plus adds what other objects say.
func (c *Columns) Plus(o Columns) {
	for of, t := range o.Announced {
		c.Announced = plus(c.Announced, of, t)
	}
	for of, t := range o.Stored {
		c.Stored = plus(c.Stored, of, t)
	}
	c.Duplicates = c.Duplicates.Plus(o.Duplicates)
}

func minus(t wire.Totals, r *wire.Record) wire.Totals {
	t.Objects--
	t.ObjectBytes -= uint64(r.Size)
	t.Digest = t.Digest.Minus(r.Digest)
	return t
}

func one(r *wire.Record) wire.Totals {
	return wire.Totals{Objects: 1, ObjectBytes: uint64(r.Size), Digest: r.Digest}
}

func plus(sums map[string]wire.Totals, of string, t wire.Totals) map[string]wire.Totals {
	if sums == nil {
		sums = map[string]wire.Totals{}
	}
	sums[of] = sums[of].Plus(t)
	return sums
}
