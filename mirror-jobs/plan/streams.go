// SPDX-License-Identifier: Apache-2.0

package plan

import "time"

const (
	// assumedRate is what a way is assumed to carry if it has not shown more, in bytes a second: 10
	// Gb/s. The actual rate shows only once enough streams fill the way, so that a rate which was
	// measured says how many are needed at least, and never that fewer would do.
	assumedRate = 10_000_000_000 / 8
	// leastStreams are useful over the shortest way: while one waits for the other side's store,
	// or for a core here, others carry.
	leastStreams = 4
	// DefaultWindow is how many bytes a connection can have in flight if that is unknown: half of Linux's greatest receive buffer,
	// tcp_rmem, of 6 MiB; the other half is for the kernel's own.
	DefaultWindow = 3 << 20
)

// Way is what is known of the way to the other side.
type Way struct {
	// RoundTrip is the least of its connections, and Answer the least time from a request to its answer; 0: unknown. Through a proxy only
	// Answer shows how long the way is.
	RoundTrip, Answer time.Duration
	// BytesPerSecond is the most that was measured of all connections together, and Limit what
	// is declared; 0: none.
	BytesPerSecond, Limit int64
	// Window is how many bytes one connection can have on its way; 0: DefaultWindow.
	Window int64
}

// Streams is how many requests for parts of objects are made at the same time, up to most: as many
// windows as there are in the bandwidth-delay product of the way.
func Streams(w Way, most int) int {
	delay := max(w.RoundTrip, w.Answer)
	if delay <= 0 {
		return most
	}
	rate := max(assumedRate, w.BytesPerSecond)
	if w.Limit > 0 {
		rate = w.Limit
	}
	window := w.Window
	if window <= 0 {
		window = DefaultWindow
	}
	product := float64(rate) * delay.Seconds()
	needed := product/float64(window) + 1 // what is left of a window needs one, too
	return int(min(max(needed, leastStreams), float64(most)))
}
