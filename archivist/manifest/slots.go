// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"time"

	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// The identities of a day are held by slots of receive time, so that a day with millions of objects
// needs memory only for the minutes that are written to.

const (
	slotLength = 10 * time.Minute
	// segmentSlot is the slot of all segments of a day: they are few, and their keys have no time.
	segmentSlot = int(24 * time.Hour / slotLength)
	slotsOfDay  = segmentSlot + 1
	// slotCost is what an empty slot takes, in identities.
	slotCost = 8
)

// slotOf returns the number of a record's slot.
func slotOf(r wire.Record) int {
	if r.Segment != nil {
		return segmentSlot
	}
	return slotAt(r.ReceivedAt)
}

func slotAt(receivedAt time.Time) int {
	t := receivedAt.UTC()
	return int((time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute) / slotLength)
}

// idSet has the identities of records, with what is listed of them.
type idSet map[read.IDHash]listing

// dayListing is what the closed parts of a day list.
type dayListing struct {
	// listed are the slots that are not empty; slots has the identities of those
	// with numbers in [from, until).
	listed      [slotsOfDay]bool
	slots       map[int]idSet
	from, until int

	files read.Files
	// unreadable are the files that could be read only in part: then slots has what the day's
	// changes say of them, and nothing is counted.
	unreadable map[string]error

	held int
}

// readDay reads a day's parts, and holds identities of the slot from and of as
// many after it as space identities allow. Paths, where given, learns which are
// taken, and counted, where given, counts the lines. Errors: those of objectstore,
// wire.ErrNewerFormat.
func readDay(ctx context.Context, store objectstore.Store, site string, key dayKey, from, space int, taken *paths, counted *lineTally) (*dayListing, error) {
	files, err := read.List(ctx, store, site, key.instrument, key.day)
	if err != nil {
		return nil, err
	}
	l := &dayListing{slots: make(map[int]idSet), from: from, until: slotsOfDay, files: files, unreadable: map[string]error{}}
	version, parts := files.Split()
	for _, of := range []struct {
		files read.Files
		count func(*lineTally, *wire.Record, read.IDHash)
	}{{version, (*lineTally).compacted}, {parts, (*lineTally).part}} {
		for r, err := range readLines(ctx, store, site, key, of.files, l.unreadable) {
			if err != nil {
				return nil, err
			}
			id, state := read.HashID(r.ID), listingOf(r.State)
			if counted != nil {
				of.count(counted, &r, id)
			}
			l.add(slotOf(r), id, state, space)
			if taken != nil && state != duplicate {
				taken.learn(r.Path, space)
			}
		}
	}
	switch {
	case counted == nil:
		return l, nil
	case len(l.unreadable) > 0:
		*counted = lineTally{}
		return l, nil
	}
	return l, counted.finish(ctx, store, files)
}

func (l *dayListing) add(number int, id read.IDHash, state listing, space int) {
	l.listed[number] = true
	if number < l.from || number >= l.until {
		return
	}
	ids := l.slots[number]
	if ids == nil {
		ids = make(idSet)
		l.slots[number] = ids
	}
	before := len(ids)
	ids[id] = max(ids[id], state)
	l.held += len(ids) - before
	for l.held > space && l.until > l.from+1 {
		l.until--
		l.held -= len(l.slots[l.until])
		delete(l.slots, l.until)
	}
}

// covers says whether the listing knows all identities of a slot.
func (l *dayListing) covers(number int) bool {
	return !l.listed[number] || number >= l.from && number < l.until
}
