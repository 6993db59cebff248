// SPDX-License-Identifier: Apache-2.0

package load

import "time"

// Stream is what one instrument sends: objects of one size in bytes, at an interval.
type Stream struct {
	Size     int
	Interval time.Duration
}

// UARC is the mix of the UARC campaign (Malan, Jahanian, Rasmussen, Knoop, 1996, figure 12).
var UARC = []Stream{{250, 3 * time.Minute}, {1500, time.Minute}, {5300, 5 * time.Second}, {20_000, time.Minute}}

// The load of ingest-small: objects of each size in bytes from many senders, with many objects in flight.
const (
	SmallSenders  = 64
	SmallInFlight = 32
	// SmallPackBelow is an Instrument's default.
	SmallPackBelow = 64 << 10
)

// SmallSizes in bytes.
var SmallSizes = []int{1500, 5300, 32_000}

// Small sends objects of one size as ingest-small does, flat out.
func Small(address string, size int, window time.Duration) Order {
	return Order{Address: address, Answer: Receipt, Size: size, Senders: SmallSenders, InFlight: SmallInFlight, Duration: window}
}

// StoreSizes in bytes and StoreSenders are those with which ingest-tcp measures the gateway with its store: each object comes over a
// connection of its own.
var (
	StoreSizes   = []int{32 << 10, 256 << 10, 1 << 20, 8 << 20}
	StoreSenders = []int{1, 3}
)

// Large sends objects as ingest-tcp does.
func Large(address string, size, senders int, window time.Duration) Order {
	return Order{Address: address, Answer: Receipt, Size: size, Senders: senders, Duration: window}
}
