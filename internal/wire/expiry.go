// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"time"
)

// ExpiryStatusKey is where the lease holder reports why nothing expires.
const ExpiryStatusKey = "expiry"

// ExpiryStatus says what keeps data of a Site from expiring that is due to.
type ExpiryStatus struct {
	ReportedAt time.Time `json:"reportedAt"`
	// Clocks says how two clocks disagree, in words for people: then nothing expires.
	// Empty where they agree.
	Clocks string `json:"clocks,omitempty"`
	// Count is of how many instruments nothing expires because more is due at once than
	// spec.archive.expiry.maxShare allows, and Stopped are those, by name, at most
	// MaxStopped.
	Count   int             `json:"count,omitempty"`
	Stopped []StoppedExpiry `json:"stopped,omitempty"`
}

// StoppedExpiry is an instrument with more data due at once than may expire.
type StoppedExpiry struct {
	Instrument string `json:"instrument"`
	// Days are due, and SharePercent of the instrument's bytes beside the oldest of them.
	Days         int     `json:"days"`
	SharePercent float64 `json:"sharePercent"`
	// MaxShare is how much may expire at once, in percent.
	MaxShare int `json:"maxShare"`
}

// MaxStopped bounds the instruments that an ExpiryStatus names.
const MaxStopped = 16
