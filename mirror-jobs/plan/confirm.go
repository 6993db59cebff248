// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
)

// Confirmed sums up the current objects of a day of another Site whose bytes are here, once all came that Day has fetched. Theirs is what
// the other Site lists, or with partial what is new there beside what is listed here.
func (p *GuestPolicy) Confirmed(theirs []mirrorindex.Entry, partial bool, here []*wire.Record) (s mirrorindex.Sum) {
	held := make(map[string][]*wire.Record, len(here))
	for _, r := range here {
		if r.Origin == nil {
			continue
		}
		held[r.Origin.ID] = append(held[r.Origin.ID], r)
		if partial && r.State == wire.StateCurrent {
			e := entryOf(r)
			s.Add(&e)
		}
	}
	for i := range theirs {
		e := &theirs[i]
		if e.Is() != wire.StateCurrent {
			continue
		}
		r, _ := sameBytes(held[e.ID], e)
		if r != nil && r.State != wire.StatePurged || r == nil && p.wanted(e) {
			s.Add(e)
		}
	}
	return s
}

// Confirmed sums up the current ones of some lines whose objects a mirror in a folder has.
func Confirmed(lines []Line) (s mirrorindex.Sum) {
	for i := range lines {
		if l := &lines[i]; l.Held && !l.Lost && !l.Gone && l.Is() == wire.StateCurrent {
			s.Add(&l.Entry)
		}
	}
	return s
}
