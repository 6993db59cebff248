// SPDX-License-Identifier: Apache-2.0

package mirrorindex

import (
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// ConfirmedPath is where a mirror says what it has, if Root.Confirms says that the Site waits for that.
const ConfirmedPath = "/mirror/confirmed"

// MaxConfirmed is how many lines fit into a question.
const MaxConfirmed = 60

// ConfirmLine is a line of what is posted to ConfirmedPath: what the mirror has of a day, or how its run ended.
type ConfirmLine struct {
	Instrument string   `json:"instrument,omitempty"`
	Day        wire.Day `json:"day,omitempty"`
	// Have sums up the current objects of the day whose bytes the mirror has verified; none: it has lost some, or lacks some.
	Have *Sum `json:"have,omitempty"`

	Run *ConfirmRun `json:"run,omitempty"`
}

// ConfirmRun says how a run ended.
type ConfirmRun struct {
	// VerifiedTo: all that the mirror pulls and was received before is there; absent: it lacks something.
	VerifiedTo time.Time `json:"verifiedTo,omitzero"`
	// ComparedAt is when a run last looked at all that is there, and lacked nothing.
	ComparedAt time.Time `json:"comparedAt,omitzero"`
	// Owed is what the run could not pull.
	Owed wire.MirrorOwed `json:"owed"`
}

// ConfirmedLine is a line of the answer about a day.
type ConfirmedLine struct {
	Instrument string   `json:"instrument,omitempty"`
	Day        wire.Day `json:"day,omitempty"`
	// Confirmed: the Site has noted that the mirror has all that the Site lists as current and was received up to the Last of its Sum.
	// Else it has noted that the mirror lacks something.
	Confirmed bool `json:"confirmed,omitempty"`
	// Unawaited: the Site does not wait for the mirror before it lets data of the Instrument expire, and has noted nothing.
	Unawaited bool `json:"unawaited,omitempty"`

	End bool `json:"end,omitempty"`
}
