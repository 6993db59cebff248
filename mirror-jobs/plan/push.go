// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
)

// PushPolicy is what of the archive a partner is given.
type PushPolicy struct {
	// AllVersions: superseded versions are given, too.
	AllVersions bool
	Prune       Prune
	// Retractions is a value of wire.MirrorEntry.Retractions. Copies of what was purged are removed, whatever it says.
	Retractions string
	// SafetyStop is the greatest share, in percent, of the copies that a partner has which one run may remove; 0: any.
	SafetyStop int
}

// Most is how many copies a run may remove at a partner that has so many: one always, however few there are.
func (p *PushPolicy) Most(held int) int {
	return removalLimit(held, p.SafetyStop)
}

// PushObject is an object as the archive lists it.
type PushObject struct {
	// Path under which it is published.
	Path   string
	Record *wire.Record
	// Selected: the partner may have it, and it is among what the MirrorPartner selects.
	Selected bool
}

// PushKnown is what a partner has confirmed of a day.
type PushKnown struct {
	// Sum of the objects that were selected, whatever has become of each since it was received.
	mirrorindex.Sum
	// Changed sums up those that were superseded, retracted, restored or purged, with what has become of them.
	Changed mirrorindex.Sum `json:"changed,omitzero"`
	// Policy is what was to become then of copies whose originals were retracted, purged or had expired.
	Policy string `json:"policy,omitempty"`
	// Objects are how many copies it has.
	Objects int `json:"objects"`
	// Absent are the copies whose originals are gone here, that the policy keeps, and that the partner is not known to have.
	// AbsentCopies are how many of them no newer version has replaced there.
	Absent       wire.Totals `json:"absent,omitzero"`
	AbsentCopies int         `json:"absentCopies,omitempty"`
}

// Push is what a run must do so that a partner has a day as it should.
type Push struct {
	// Deliver are the indexes of the objects that the partner may lack, and Remove the indexes of objects that it may have a copy of but
	// should not.
	Deliver, Remove []int
	// Kept are the indexes of those whose copies stay though the originals are gone here.
	Kept []int
	// Confirmed: the partner had all that was listed when it last confirmed something of the day.
	Confirmed bool
	// Known and Totals are what the partner has once that is done.
	Known  PushKnown
	Totals wire.Totals
}

// Day compares what the archive lists for a day with what a partner has confirmed of it. If all that it confirmed is still listed, only
// what came or changed since is to be done; otherwise, and with anew, everything.
func (p *PushPolicy) Day(objects []PushObject, known PushKnown, anew bool) (d Push) {
	d.Known.Policy = string(p.Prune) + " " + p.Retractions
	var before mirrorindex.Sum
	for i := range objects {
		o := &objects[i]
		if o.Selected {
			e := identity(o)
			d.Known.Add(&e)
			if !o.Record.ReceivedAt.After(known.Last) {
				before.Add(&e)
			}
		}
		if o.Record.Changes() {
			e := mirrorindex.EntryOf(o.Path, o.Record)
			d.Known.Changed.Add(&e)
		}
	}
	confirmed := known.Count > 0 && before.Same(known.Sum)
	d.Confirmed = !anew && confirmed
	if confirmed {
		d.Known.Absent, d.Known.AbsentCopies = known.Absent, known.AbsentCopies
	}
	changed := !d.Confirmed || !d.Known.Changed.Same(known.Changed) || d.Known.Policy != known.Policy
	replaced := superseded(objects)
	for i := range objects {
		o := &objects[i]
		old := d.Confirmed && !o.Record.ReceivedAt.After(known.Last)
		switch {
		case p.Gives(o):
			if !old || changed && o.Record.Changes() {
				d.Deliver = append(d.Deliver, i)
			}
			d.has(o.Record)
		case !isGone(o.Record):
		case !p.Keeps(o.Record):
			if changed {
				d.Remove = append(d.Remove, i)
			}
		case o.Selected && (p.AllVersions || !replaced[o.Record.ID]):
			d.Kept = append(d.Kept, i)
			if confirmed && !o.Record.ReceivedAt.After(known.Last) {
				d.has(o.Record)
			} else {
				d.lacks(o.Record)
			}
		}
	}
	var kept wire.Totals
	for _, i := range d.Kept {
		kept.AddCopy(objects[i].Record)
	}
	if is := d.Known.Absent; d.Known.Policy != known.Policy || is.Objects > kept.Objects || is.Datagrams > kept.Datagrams { // it is not known which copies are absent
		d.Known.Absent, d.Known.AbsentCopies = kept, len(d.Kept)
	}
	d.Totals = d.Totals.MinusCopies(d.Known.Absent)
	return d
}

// Gives says whether the partner is to have an object.
func (p *PushPolicy) Gives(o *PushObject) bool {
	is := o.Record.State
	return o.Selected && (is == wire.StateCurrent || is == wire.StateSuperseded && p.AllVersions)
}

// has counts a copy, and in the unit of the ledger what it holds.
func (d *Push) has(r *wire.Record) {
	d.Known.Objects++
	d.Totals.AddCopy(r)
}

// lacks counts a copy that no run has brought and none can bring. It is counted in Totals, too, off which Absent is taken.
func (d *Push) lacks(r *wire.Record) {
	d.Known.AbsentCopies++
	d.Known.Absent.AddCopy(r)
	d.Totals.AddCopy(r)
}

// identity is an object without what became of it.
func identity(o *PushObject) mirrorindex.Entry {
	e := mirrorindex.EntryOf(o.Path, o.Record)
	e.State, e.Reason = "", ""
	return e
}

// superseded are the objects, by ID, that have a newer version on the same day: the record of a purged object does not say so.
func superseded(objects []PushObject) map[string]bool {
	all := map[string]bool{}
	for i := range objects {
		if older := objects[i].Record.Supersedes; older != "" {
			all[older] = true
		}
	}
	return all
}

func isGone(r *wire.Record) bool {
	return r.State == wire.StateRetracted || r.State == wire.StatePurged
}

// Expired says whether an object is gone because its Instrument keeps nothing longer. The archive lists it as such: of what is
// not listed, because a catalog or a file cannot be read, nothing is known.
func Expired(r *wire.Record) bool {
	return r.Expired()
}

// Keeps says whether the copy of an object stays that was retracted or purged here, or expired.
func (p *PushPolicy) Keeps(r *wire.Record) bool {
	retracted := r.RetractedAt != nil && r.RestoredAt == nil // before it expired, too
	switch {
	case Expired(r) && retracted:
		return p.Prune != PruneWhenExpired && p.Retractions == wire.MirrorIgnore
	case Expired(r):
		return p.Prune != PruneWhenExpired
	default:
		return r.State == wire.StateRetracted && p.Retractions == wire.MirrorIgnore
	}
}

// Tombstone says whether a file takes the place of the copy of an object, and tells why it is gone.
func (p *PushPolicy) Tombstone(r *wire.Record) bool {
	return isGone(r) && !Expired(r) && p.Retractions == wire.MirrorTombstone
}

// Share is the part of the copies that a run verifies, in percent of the values that a hash has. The next run takes the part
// behind it, so that all copies come within 100/Percent runs, rounded up.
type Share struct {
	From    int `json:"from"`
	Percent int `json:"-"`
}

// Holds says whether an object with a digest is in the share. Objects of one digest are verified together.
func (s Share) Holds(d wire.Digest) bool {
	at := (int(d[0])<<16 | int(d[1])<<8 | int(d[2])) % 100
	return (at-s.From%100+100)%100 < s.Percent
}

// Next is the share of the next run.
func (s Share) Next() Share {
	return Share{(s.From + s.Percent) % 100, s.Percent}
}
