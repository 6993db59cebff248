// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strings"
	"time"
)

const forwardKey = "forward."

// ForwardCursorKey is the key of an instrument's ForwardCursor.
func ForwardCursorKey(instrument string) string { return forwardKey + instrument }

// ForwardStatusKey is where the lease holder reports about an instrument's copy.
func ForwardStatusKey(instrument string) string { return forwardKey + instrument }

// ParseForwardStatusKey returns the instrument that a key of the status bucket
// names, and false for other keys.
func ParseForwardStatusKey(key string) (instrument string, ok bool) {
	instrument, ok = strings.CutPrefix(key, forwardKey)
	return instrument, ok && instrument != "" && !strings.Contains(instrument, ".")
}

// ForwardCursor says how far the copy of what an instrument sent has come. It is
// written after what it speaks of was sent.
type ForwardCursor struct {
	// Protocol says which stream is followed: notices or telemetry. Epoch is the epoch of that stream.
	Protocol string `json:"protocol"`
	Epoch    string `json:"epoch"`
	// Next is the first stream sequence that may not be sent yet; of those behind
	// it, Done are sent, in ascending order: objects are put in the order in which
	// they were received.
	Next uint64   `json:"next"`
	Done []uint64 `json:"done,omitempty"`
	// Sent and Dropped so far. Seen is what there was to send below SeenNext:
	// what the stream lost of it meanwhile is what is missing at the end.
	Sent     ForwardTotals `json:"sent"`
	Dropped  ForwardTotals `json:"dropped"`
	Seen     ForwardTotals `json:"seen"`
	SeenNext uint64        `json:"seenNext"`
}

// ForwardTotals count what is copied: objects, or datagrams, and their bytes.
type ForwardTotals struct {
	Items uint64 `json:"items"`
	Bytes uint64 `json:"bytes"`
}

// ForwardStatus is what the lease holder reports about an instrument's copy, when
// it changed and at most every GatewayReportInterval.
type ForwardStatus struct {
	ReportedAt time.Time `json:"reportedAt"`
	// Gateway is the lease holder's pod.
	Gateway string `json:"gateway"`
	Address string `json:"address"`
	// Sent and Dropped since the copy began; Backlog waits.
	Sent    ForwardTotals `json:"sent"`
	Dropped ForwardTotals `json:"dropped"`
	Backlog ForwardTotals `json:"backlog"`
	// Oldest of the backlog was received then.
	Oldest *time.Time `json:"oldest,omitempty"`
	// LastError says what keeps the next one from being sent.
	LastError string `json:"lastError,omitempty"`
}
