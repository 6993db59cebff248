// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
)

// GuestPolicy is how the archive of a Site follows what another Site lists of its instrument.
type GuestPolicy struct {
	Selection
	// Superseded versions are wanted, too.
	AllVersions bool
	// Embargo is how long after its observation data is kept from the public there; 0 where that data is wanted, too.
	Embargo time.Duration
	// Retractions is a value of wire.MirrorEntry.Retractions. Objects that are purged there are purged here, whatever it says.
	Retractions string
	// By asks for changes here. Objects that another user retracted here stay retracted.
	By string
	// Lost are the IDs of records that are listed here, and whose objects the store lost: they are fetched again.
	Lost map[string]bool
	// SafetyStop is the greatest share, in percent, of what was pulled that runs may have retracted or purged on RemovalDays days; 0: any.
	SafetyStop int
}

// Allow says whether a run may have so many more objects retracted or purged, after those that runs had before on the days that count, and
// where so many were pulled from the other Site: one always. It returns nil if it may.
func (p *GuestPolicy) Allow(remove, before, pulled int) *SafetyStopError {
	if remove == 0 || before+remove <= removalLimit(pulled, p.SafetyStop) {
		return nil
	}
	return &SafetyStopError{Remove: remove, Before: before, Held: pulled, Percent: p.SafetyStop}
}

// Change is a change that the archivist is to be asked for.
type Change struct {
	Action wire.Action
	// Record is the object as it is listed here.
	Record *wire.Record
	Reason string
	// RetractedAt is when it was retracted at the other Site; nil: it was not.
	RetractedAt *time.Time
}

// Guest is what is to be done so that the archive of a Site has a day as another Site lists it.
type Guest struct {
	// Fetch are indexes of what the other Site lists.
	Fetch []int
	// Again are those of them that are listed here, and lost.
	Again map[int]bool
	// Missing are objects here that the store lost, and that the other Site does not give any more, or that are not selected: no run fetches
	// them again. Objects that are to be purged here are not among them.
	Missing []*wire.Record
	// Changes are those that leave the objects readable, and Remove the retractions and purges, for which GuestPolicy.Allow is asked
	// with those of all days.
	Changes, Remove []Change
	// Supersede are the indexes, among Fetch, of those that are to be marked as superseded once they are here.
	Supersede []int
	// Gone are how many objects By has had retracted or purged here so far.
	Gone int
	// Same are how many objects are here already.
	Same int
	// Withheld are under embargo: a later run asks again.
	Withheld int
	// Reused are indexes of what the other Site lists under the ID of an object that is here with other bytes, for the first time: the
	// other Site went back. Both are kept, and Later is how many of those here are to be marked as superseded once the new one is listed.
	Reused []int
	Later  int
	// Kept are how many retractions and purges that By asked for stand here, though the other Site no longer lists them and the objects
	// were not restored there: it went back.
	Kept int
}

// Day compares what another Site lists of a day with what is listed here. An object is one by its ID there, and by its digest: a Site that
// was installed again, or restored from a backup, gives an ID to other bytes. An object that was here, and is lost, is fetched whatever
// embargo the other Site has declared since.
func (p *GuestPolicy) Day(theirs []mirrorindex.Entry, here []*wire.Record, now time.Time) (g Guest) {
	held := make(map[string][]*wire.Record, len(here))
	for _, r := range here {
		if r.Origin == nil {
			continue
		}
		held[r.Origin.ID] = append(held[r.Origin.ID], r)
		if takenBack(r) && r.ChangedBy == p.By {
			g.Gone++
		}
	}
	settled := map[string]bool{} // of what the store lost: it is fetched again, or goes
	for i := range theirs {
		e := &theirs[i]
		r, others := sameBytes(held[e.ID], e)
		if e.Is() == wire.StateCurrent {
			g.replace(i, r, others, p.wanted(e))
		} else if r == nil && len(others) > 0 {
			g.Reused = append(g.Reused, i)
		}
		if r != nil {
			c := p.change(e, r)
			if p.reverts(e, r) {
				g.Kept++
			}
			if p.Lost[r.ID] && p.gives(e) {
				g.Fetch = append(g.Fetch, i)
				if g.Again == nil {
					g.Again = map[int]bool{}
				}
				g.Again[i] = true
				settled[r.ID] = true
			} else if !p.Lost[r.ID] || c.Action == wire.ActionPurge {
				g.Same++
				settled[r.ID] = true
			}
			switch hides := c.Action == wire.ActionPurge || c.Action == wire.ActionRetract && r.State != wire.StateRetracted; {
			case c.Action == "":
			case hides:
				g.Remove = append(g.Remove, c)
			default:
				g.Changes = append(g.Changes, c)
			}
			if c.Action == wire.ActionRestore && e.Is() == wire.StateSuperseded { // the archivist restores it as what it was before
				g.Changes = append(g.Changes, Change{Action: wire.ActionSupersede, Record: r})
			}
			continue
		}
		switch {
		case !p.wanted(e):
		case p.withheld(e, now):
			g.Withheld++
		default:
			g.Fetch = append(g.Fetch, i)
			if e.Is() == wire.StateSuperseded {
				g.Supersede = append(g.Supersede, i)
			}
		}
	}
	for _, r := range here {
		if p.Lost[r.ID] && !settled[r.ID] {
			g.Missing = append(g.Missing, r)
		}
	}
	return g
}

// Unlisted counts the objects here that another Site does not list any more in the list of their day, and returns the first of them. One whose
// bytes are those of another object of the list that is here was found to be a duplicate of that, and so was one without a name of an object with
// one that is to come.
func (p *GuestPolicy) Unlisted(theirs []mirrorindex.Entry, here []*wire.Record) (first *wire.Record, n int) {
	isHere := make(map[string]bool, len(here))
	for _, r := range here {
		if r.Origin != nil {
			isHere[r.Origin.ID] = true
		}
	}
	listed, current := ListingOf(theirs), currentDigests(theirs, func(e *mirrorindex.Entry) bool { return isHere[e.ID] })
	named := currentDigests(theirs, func(e *mirrorindex.Entry) bool { return wire.IsNamedID(e.ID) && p.wanted(e) })
	for _, r := range here {
		if r.Origin == nil || listed[r.Origin.ID] != nil || current[r.Digest] || named[r.Digest] && !wire.IsNamedID(r.Origin.ID) {
			continue
		}
		if n++; first == nil {
			first = r
		}
	}
	return first, n
}

// currentDigests returns the digests of the current objects of a list for which include is true.
func currentDigests(list []mirrorindex.Entry, include func(*mirrorindex.Entry) bool) map[wire.Digest]bool {
	all := make(map[wire.Digest]bool, len(list))
	for i := range list {
		if list[i].Is() == wire.StateCurrent && include(&list[i]) {
			all[list[i].Digest] = true
		}
	}
	return all
}

// sameBytes returns the one of some objects of one ID that has the bytes of an entry; nil: none has. Others are the rest.
func sameBytes(all []*wire.Record, e *mirrorindex.Entry) (same *wire.Record, others []*wire.Record) {
	for _, r := range all {
		if r.Digest == e.Digest && r.Size == e.Size {
			same = r
		} else {
			others = append(others, r)
		}
	}
	return same, others
}

// replace has other objects with the ID of a current one superseded, once that one is listed here, if it is to come.
func (g *Guest) replace(i int, r *wire.Record, others []*wire.Record, comes bool) {
	if r == nil && len(others) > 0 {
		g.Reused = append(g.Reused, i)
	}
	for _, other := range others {
		switch {
		case other.State != wire.StateCurrent:
		case r == nil && comes:
			g.Later++
		case r == nil:
		case r.State == wire.StateCurrent:
			g.Changes = append(g.Changes, Change{Action: wire.ActionSupersede, Record: other})
		}
	}
}

// gives says whether the other Site gives the bytes of an object that was here before: then of a superseded version, too.
func (p *GuestPolicy) gives(e *mirrorindex.Entry) bool {
	is := e.Is()
	return (is == wire.StateCurrent || is == wire.StateSuperseded) && p.Selects(e)
}

func (p *GuestPolicy) wanted(e *mirrorindex.Entry) bool {
	is := e.Is()
	return (is == wire.StateCurrent || is == wire.StateSuperseded && p.AllVersions) && p.Selects(e)
}

// withheld says whether an object is under embargo at the other Site: who pulls may be one of those that may read it, and the
// public here is not.
func (p *GuestPolicy) withheld(e *mirrorindex.Entry, now time.Time) bool {
	_, observed := e.Observed()
	return p.Embargo > 0 && now.Before(observed.Add(p.Embargo))
}

func takenBack(r *wire.Record) bool {
	return r.State == wire.StateRetracted || r.State == wire.StatePurged
}

// change is what brings an object here into the state that it has there; the zero Change if it is in that state, or cannot come into it.
func (p *GuestPolicy) change(e *mirrorindex.Entry, r *wire.Record) Change {
	theirs, ours := e.Is(), r.State
	stands := theirs == wire.StateCurrent || theirs == wire.StateSuperseded || theirs == wire.StateExpired && !e.Retracted
	switch {
	case ours == wire.StatePurged:
		return Change{}
	case e.IsPurge(), e.IsRetraction() && p.Retractions == wire.MirrorDelete && ours != wire.StateRetracted:
		return Change{wire.ActionPurge, r, e.Reason, e.RetractedAt}
	case e.IsRetraction() && p.Retractions != wire.MirrorIgnore && ours != wire.StateRetracted:
		return Change{wire.ActionRetract, r, retractionReason(e), e.RetractedAt}
	case p.isAgain(e, r):
		return Change{wire.ActionRetract, r, retractionReason(e), e.RetractedAt}
	case p.reverts(e, r):
		return Change{}
	case stands && ours == wire.StateRetracted && r.ChangedBy == p.By:
		return Change{Action: wire.ActionRestore, Record: r, Reason: e.Reason}
	case theirs == wire.StateSuperseded && ours == wire.StateCurrent:
		return Change{Action: wire.ActionSupersede, Record: r}
	default:
		return Change{}
	}
}

// isAgain says whether an object that By had retracted was restored and retracted again at the other Site since. A restoration between the two
// must not undo the second, so that its time is noted here.
func (p *GuestPolicy) isAgain(e *mirrorindex.Entry, r *wire.Record) bool {
	return e.IsRetraction() && p.Retractions != wire.MirrorIgnore && r.RetractedAgain(p.By, e.RetractedAt)
}

// reverts says whether the other Site no longer lists a retraction or purge that By asked for, although the object was not restored
// there. With MirrorIgnore its list decides. By also has objects purged that are retracted there.
func (p *GuestPolicy) reverts(e *mirrorindex.Entry, r *wire.Record) bool {
	here := entryOf(r)
	return r.ChangedBy == p.By && p.Retractions != wire.MirrorIgnore && !e.Removed() && !e.RestoredAfter(r.Origin.RetractedAt) && e.Reverts(&here)
}

// retractionReason is why an object was retracted there. If the object has expired since, its entry has the reason of the expiry.
func retractionReason(e *mirrorindex.Entry) string {
	if e.Is() == wire.StateExpired {
		return "retracted at its origin, where it has expired since"
	}
	return e.Reason
}

// Have sums up what is here of a day as the other Site would list it, so that it tells only what is new.
func Have(here []*wire.Record) (s mirrorindex.Sum) {
	for _, r := range here {
		if r.Origin == nil {
			continue
		}
		e := entryOf(r)
		s.Add(&e)
	}
	return s
}

// entryOf is what the other Site lists of an object that is here.
func entryOf(r *wire.Record) mirrorindex.Entry {
	e := mirrorindex.EntryOf(r.Path, r)
	e.ID, e.RetractedAt = r.Origin.ID, r.Origin.RetractedAt
	return e
}
