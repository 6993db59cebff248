// SPDX-License-Identifier: Apache-2.0

// Package plan decides what a run of a mirror must do: which objects it fetches, which it
// removes, and how it asks for them. It does no I/O.
package plan

import (
	"cmp"
	"slices"
	"strings"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
)

// Line is what a mirror knows of an object of the other side.
type Line struct {
	mirrorindex.Entry
	// Held: the mirror has its bytes.
	Held bool `json:"held,omitempty"`
	// Lost: a run with force did not find its file. It is Held nevertheless, so that each such run names it until one accepts the loss.
	Lost bool `json:"lost,omitempty"`
	// Replaced: the mirror had its bytes, and a newer version of its name is listed since. Until the newer version's file comes, if it
	// ever does, the file is still this object's.
	Replaced bool `json:"replaced,omitempty"`
	// Gone: the other side does not list it any more. Moved: it lists the object under another path, or found it to be a duplicate of
	// another listed object that is here with its bytes.
	Gone  bool `json:"gone,omitempty"`
	Moved bool `json:"moved,omitempty"`
}

// key tells lines of a day apart: an object whose path changes is another line, and so are other bytes under its ID, which an origin lists
// that was installed again or restored from a backup.
func (l *Line) key() string { return l.object() + "\x00" + l.Path }

// object tells objects apart.
func (l *Line) object() string { return l.ID + "\x00" + string(l.Digest[:]) }

// Listing is what the other side lists of a day by now, by ID.
type Listing map[string]*mirrorindex.Entry

// ListingOf returns the Listing of a list.
func ListingOf(list []mirrorindex.Entry) Listing {
	all := make(Listing, len(list))
	for i := range list {
		all[list[i].ID] = &list[i]
	}
	return all
}

// Has says whether an object is listed as it was: else it was replaced, retracted or purged since, or expired, and the other side cannot
// give it as that any more.
func (l Listing) Has(e *mirrorindex.Entry) bool {
	is := l[e.ID]
	return is != nil && is.Digest == e.Digest && is.Path == e.Path && is.Is() == e.Is()
}

// SumOf sums up what the other side had listed when it was asked last.
func SumOf(lines []Line) (s mirrorindex.Sum) {
	for i := range lines {
		if !lines[i].Gone {
			s.Add(&lines[i].Entry)
		}
	}
	return s
}

// Merge returns the lines of a day after an answer: theirs is all that the other side lists, or with more what is to be added. Ours are
// the lines before; they may be changed. The lines are in the order of their paths. Kept are the retractions and purges that stand here,
// though the other side does not list them any more, and the objects were not restored there: it was restored from an older backup. With
// RetractionsIgnore they do not stand.
func (p Policy) Merge(ours []Line, theirs []mirrorindex.Entry, more bool) (all []Line, kept int) {
	if more {
		for _, e := range theirs {
			ours = append(ours, Line{Entry: e})
		}
		sortLines(ours)
		return ours, 0
	}
	known, held := make(map[string]*Line, len(ours)), make(map[string]bool, len(ours))
	removed := map[string]*Line{}
	for i := range ours {
		l := &ours[i]
		known[l.key()] = l
		held[l.object()] = held[l.object()] || l.Held
		if l.Removed() && !l.Held && p.Retractions != RetractionsIgnore { // one that is held was never acted upon
			removed[l.object()] = l
		}
	}
	all = make([]Line, 0, len(theirs))
	listed := make(map[string]bool, len(theirs))
	for _, e := range theirs {
		l := Line{Entry: e}
		listed[l.object()] = true
		if before := removed[l.object()]; before != nil && e.Reverts(&before.Entry) {
			l.Entry = before.Entry
			kept++
		}
		if before := known[l.key()]; before != nil {
			l.Held, l.Lost, l.Replaced = before.Held, before.Lost, before.Replaced
			if l.State == wire.StateSuperseded {
				l.Held, l.Lost, l.Replaced = false, false, l.Held || l.Replaced
			}
			delete(known, l.key())
		}
		all = append(all, l)
	}
	current := currentDigests(theirs, func(e *mirrorindex.Entry) bool { return held[(&Line{Entry: *e}).object()] })
	for _, l := range known {
		if l.Held || l.Replaced || removed[l.object()] == l { // what never was here leaves no trace
			l.Gone, l.Moved = true, listed[l.object()] || l.Is() == wire.StateCurrent && current[l.Digest]
			if l.Held || l.Replaced || !l.Moved {
				all = append(all, *l)
			}
		}
	}
	sortLines(all)
	return all, kept
}

func sortLines(all []Line) {
	slices.SortFunc(all, func(a, b Line) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(a.Version, b.Version), strings.Compare(a.ID, b.ID))
	})
}

// Unlisted counts the objects that a mirror has, and that the other side does not list any more. One without a name whose bytes are those of an
// object with a name of the same day, which is here or is to come, was found to be a duplicate of that.
func (s Selection) Unlisted(lines []Line) (n int) {
	named := map[wire.Digest]bool{}
	for i := range lines {
		if l := &lines[i]; !l.Gone && l.Is() == wire.StateCurrent && wire.IsNamedID(l.ID) && (l.Held || s.Selects(&l.Entry)) {
			named[l.Digest] = true
		}
	}
	for i := range lines {
		if l := &lines[i]; l.Held && l.Gone && !l.Moved && (wire.IsNamedID(l.ID) || !named[l.Digest]) {
			n++
		}
	}
	return n
}

// Missing returns the indexes of the lines whose objects are to be fetched.
func (s Selection) Missing(lines []Line) (all []int) {
	for i := range lines {
		if l := &lines[i]; (!l.Held || l.Lost) && !l.Gone && l.Is() == wire.StateCurrent && s.Selects(&l.Entry) {
			all = append(all, i)
		}
	}
	return all
}

// Held counts the objects of some lines that a mirror has, and their bytes.
func Held(lines []Line) (objects int, bytes int64) {
	for i := range lines {
		if lines[i].Held {
			objects++
			bytes += lines[i].Size
		}
	}
	return objects, bytes
}
