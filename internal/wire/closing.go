// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"time"
)

// ClosingCursorKey is the key of the ClosingCursor of a kind of days.
func ClosingCursorKey(kind DayKind) string { return "closing." + string(kind) }

// ClosingCursor says which changes of a bucket are in closed days.
type ClosingCursor struct {
	// Epoch names the bucket's stream, and Revision is the last change that was seen.
	Epoch    string `json:"epoch"`
	Revision uint64 `json:"revision"`
	// Open are the days that changed since they were last written, ascending.
	Open []Day `json:"open,omitempty"`
}

// LedgerStatusKey is where the lease holder reports how far the ledger is closed.
const LedgerStatusKey = "ledger"

// LedgerStatus says how far a Site's ledger is closed.
type LedgerStatus struct {
	ReportedAt time.Time `json:"reportedAt"`
	// ClosedTo is the last day up to which all days are closed; empty if none is.
	ClosedTo Day `json:"closedTo,omitempty"`
	// WaitsFor says what keeps the next day from being closed, in words for people;
	// empty where only its time has not come.
	WaitsFor string `json:"waitsFor,omitempty"`
	// Reopened are days that were closed before and changed since, ascending, at most
	// MaxReopened.
	Reopened []Day `json:"reopened,omitempty"`
}

// MaxReopened bounds the days that a LedgerStatus names.
const MaxReopened = 16
