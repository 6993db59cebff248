// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"cmp"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// sighting is what a look at a durable and its stream shows. The stream itself is looked at last:
// if First is at or before what was known to be acknowledged, nothing can have been purged from
// under the durable before the look at it, and Floor is what the consumer acknowledged. (A purge
// moves the floor, too.)
type sighting struct {
	Epoch       string
	First, Last uint64
	// Created is when the durable was made, and Start the first sequence that it was
	// made for; 0 where it does not say.
	Created time.Time
	Start   uint64
	// Acknowledged is up to where everything was when the durable was made, as its maker states; 0
	// if it is not stated.
	Acknowledged uint64
	// Floor is the last sequence up to which all is acknowledged.
	Floor uint64
	// Waiting messages for delivery or acknowledgement.
	Waiting uint64
	// Found is the first sequence behind Floor, and behind what was known before, that waits; 0 if
	// it was not looked for.
	Found uint64
	// Gone: the message that waited at the place known before is not in the stream any
	// more, wherever that begins: another subject's may keep its front. Found is looked
	// for from there.
	Gone bool
}

// missing is a run of messages that a consumer can never be given; it is empty if From is greater
// than To.
type missing struct {
	// Epoch of the stream that they were in.
	Epoch    string
	From, To uint64
	Count    uint64
	Reason   wire.GapReason
}

// compareSighting compares a look with what was known before, the zero value where nothing was.
// It returns what is known now, and what the consumer has missed since, or nil.
func compareSighting(before wire.DeliveryPlace, seen sighting) (now wire.DeliveryPlace, lost *missing) {
	now = wire.DeliveryPlace{Epoch: seen.Epoch, Created: seen.Created, Next: max(seen.Floor+1, seen.First), Last: seen.Last, Waiting: seen.Waiting}
	switch {
	case before.Epoch == "":
		return now, nil
	case before.Epoch != seen.Epoch:
		to := max(before.Last, before.Next-1)
		return now, &missing{Epoch: before.Epoch, From: before.Next, To: to, Count: before.Waiting, Reason: wire.GapStreamRecreated}
	case !before.Created.Equal(seen.Created):
		return compareRecreated(before, seen, now)
	}
	if seen.First > before.Next {
		lost = &missing{Epoch: seen.Epoch, From: before.Next, To: seen.First - 1, Count: seen.First - before.Next, Reason: wire.GapRetention}
	}
	if lost == nil && seen.Gone {
		to := seen.Found
		if seen.Waiting == 0 { // nor does what came up to the last look
			to = before.Last + 1
		}
		switch {
		case to == 0: // not known yet: judged at the next look
			return before, nil
		case to > before.Next:
			lost = &missing{Epoch: seen.Epoch, From: before.Next, To: to - 1, Count: to - before.Next, Reason: wire.GapRetention}
			now.Next = max(now.Next, to)
		}
	}
	now.Next = max(now.Next, before.Next)
	defer func() { now.Waits = seen.Found > 0 && now.Next == seen.Found }()
	switch {
	case seen.Waiting == 0:
		now.Next = max(now.Next, before.Last+1) // what came up to the last look is acknowledged, or not selected
	case lost == nil:
		now.Next = max(now.Next, seen.Found)
	}
	return now, lost
}

// compareRecreated: the durable, with its place, was deleted and recreated.
func compareRecreated(before wire.DeliveryPlace, seen sighting, now wire.DeliveryPlace) (wire.DeliveryPlace, *missing) {
	start := seen.Start
	start = cmp.Or(start, seen.Floor+1)
	start = max(start, seen.First)
	now.Next = max(start, seen.Floor+1)
	next := before.Next
	if seen.First <= next { // else a purge may have moved what was taken for acknowledged
		next = max(next, seen.Acknowledged+1)
	}
	lost := missing{Epoch: seen.Epoch, From: next, To: next - 1, Reason: wire.GapConsumerDeleted}
	if start > next {
		lost.To, lost.Count = start-1, start-next
	}
	return now, &lost
}

// record returns the loss as a gap record.
func (m missing) record(consumer, stream string, at time.Time) wire.Gap {
	g := wire.Gap{Consumer: consumer, Stream: stream, To: wire.ResumeToken{Epoch: m.Epoch, Sequence: m.To}.String(),
		Count: m.Count, Reason: m.Reason, At: at}
	if m.From <= m.To {
		g.From = wire.ResumeToken{Epoch: m.Epoch, Sequence: m.From}.String()
	}
	return g
}
