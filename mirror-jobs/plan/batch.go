// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"slices"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// LargeFrom is the size in bytes from which on an object is fetched by itself, in parts:
	// a bundle that breaks off there would have to begin it again.
	LargeFrom = 8 << 20
	// batchBytes and batchObjects are what one bundle holds at most, but for its last object.
	// It is what is fetched again when a link breaks that always breaks before the end.
	batchBytes   = 16 << 20
	batchObjects = 8192
)

// Wanted is a day with objects to be fetched.
type Wanted struct {
	Instrument string
	Day        wire.Day
	// Lines of the day, and the indexes of those that are missing, as Missing returns them.
	Lines   []Line
	Missing []int
	// Partial: the day has more than Lines.
	Partial bool
}

// Part is what a batch has of a day.
type Part struct {
	// Of is the index of the Wanted; Missing are indexes of its Lines.
	Of      int
	Missing []int
}

// Batch is one bundle to ask for.
type Batch struct {
	Questions []mirrorindex.ObjectsQuestion
	Parts     []Part
	Bytes     int64
}

// Batches returns the bundles to ask for, and the large objects that are fetched one by one.
func Batches(all []Wanted) (batches []Batch, large []Part) {
	var b batcher
	for of := range all {
		w := &all[of]
		small := make([]int, 0, len(w.Missing))
		for _, i := range w.Missing {
			if w.Lines[i].Size < LargeFrom {
				small = append(small, i)
			} else {
				large = append(large, Part{of, []int{i}})
			}
		}
		b.day(of, w, small)
	}
	b.end()
	return b.batches, large
}

// batcher puts days into batches, one after the other.
type batcher struct {
	batches []Batch
	next    Batch
	objects int
	// question is the length of the questions as JSON.
	question int
}

// day adds the small objects of a day that are missing.
func (b *batcher) day(of int, w *Wanted, small []int) {
	if len(small) == 0 {
		return
	}
	q := mirrorindex.ObjectsQuestion{Instrument: w.Instrument, Day: w.Day, Below: LargeFrom - 1}
	var bytes int64
	for _, i := range small {
		bytes += w.Lines[i].Size
	}
	if whole(w, small) && bytes <= batchBytes && len(small) <= batchObjects { // no need to name them
		b.add(q, Part{of, small}, bytes)
		return
	}
	b.named(of, w, small)
}

// named asks for some objects of a day by their IDs.
func (b *batcher) named(of int, w *Wanted, small []int) {
	empty := mirrorindex.ObjectsQuestion{Instrument: w.Instrument, Day: w.Day}
	q, part, bytes, length := empty, Part{Of: of}, int64(0), lengthOf(empty)+len(`,"ids":[]`)
	for _, i := range small {
		l := &w.Lines[i]
		id := lengthOf(l.ID)
		if len(q.IDs) > 0 && (length+id > mirrorindex.MaxQuestionBytes || bytes+l.Size > batchBytes) {
			b.add(q, part, bytes)
			q, part, bytes, length = empty, Part{Of: of}, 0, lengthOf(empty)+len(`,"ids":[]`)
		}
		q.IDs, part.Missing, bytes, length = append(q.IDs, l.ID), append(part.Missing, i), bytes+l.Size, length+id
	}
	b.add(q, part, bytes)
}

// add puts a question into the batch, or into the next one where that would be too large.
func (b *batcher) add(q mirrorindex.ObjectsQuestion, p Part, bytes int64) {
	length := lengthOf(q)
	if b.question+length > mirrorindex.MaxQuestionBytes || b.next.Bytes+bytes > batchBytes || b.objects+len(p.Missing) > batchObjects {
		b.end()
	}
	b.next.Questions = append(b.next.Questions, q)
	b.next.Parts = append(b.next.Parts, p)
	b.next.Bytes += bytes
	b.objects += len(p.Missing)
	b.question += length
}

func (b *batcher) end() {
	if len(b.next.Questions) > 0 {
		b.batches = append(b.batches, b.next)
	}
	b.next, b.objects, b.question = Batch{}, 0, 0
}

// whole says whether the small objects that are missing are all current ones of a day.
func whole(w *Wanted, small []int) bool {
	if w.Partial || slices.ContainsFunc(small, func(i int) bool { return w.Lines[i].Is() != wire.StateCurrent }) {
		return false
	}
	n := 0
	for i := range w.Lines {
		if l := &w.Lines[i]; !l.Gone && l.Is() == wire.StateCurrent && l.Size < LargeFrom {
			n++
		}
	}
	return n == len(small)
}

// lengthOf is the length of a value as a line, or as a part of one with its comma.
func lengthOf(v any) int {
	text, _ := json.Marshal(v) // it is text and numbers
	return len(text) + 1
}
