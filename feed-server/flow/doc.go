// SPDX-License-Identifier: Apache-2.0

// Package flow decides what a consumer that is slower than its Feed is given: the
// newest of each source (mode Latest), the newest of each interval (mode Sample),
// how fast, and what is said of the rest. It does no I/O and takes the time as an
// input. Mode All needs nothing of it but a pace: its messages wait in the stream.
//
// Nothing here grows with the lag of a consumer: what waits is bounded in items
// and bytes, and what does not fit is counted.
package flow

import "time"

// Item is what is counted, replaced and sampled: a notice, or one datagram of a
// telemetry message.
type Item struct {
	// Key distinguishes sources: an instrument, or a channel of one.
	Key string
	// At is the item's time: the time of observation if it is known, otherwise the time of receipt.
	At time.Time
	// Size in bytes of what Value holds.
	Size int
	// Also is how many older items of the same source came together with this one,
	// and are counted as if they had been offered before it.
	Also uint64
	// Value is passed on and never looked at. It must not share memory with more
	// than itself: items are kept for long.
	Value any
}

// Kept is an item that is due, and what it stands for.
type Kept struct {
	Item
	// Replaced is how many items of the same source are not given, since the last one
	// that was: newer ones came before the consumer took them.
	Replaced uint64
	// Sampled is how many are not given because the interval asks for one.
	Sampled uint64
}
