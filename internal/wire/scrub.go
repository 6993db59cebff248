// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"time"
)

// ScrubCursorKey is the key of the ScrubCursor.
const ScrubCursorKey = "scrub"

// ScrubCursor says how far a pass of the scrub has come.
type ScrubCursor struct {
	// BegunAt is when the pass began. Instrument and Day are read now, and Records of
	// that day's are done. At the end Done is set.
	BegunAt    time.Time `json:"begunAt"`
	Instrument string    `json:"instrument,omitempty"`
	Day        Day       `json:"day,omitempty"`
	Records    int       `json:"records,omitempty"`
	Done       bool      `json:"done,omitempty"`
	// Objects and Bytes of the pass that were read, Damaged how many of them were, and
	// Unreadable the days that were left out since a file of their manifest cannot be read.
	Objects    uint64 `json:"objects"`
	Bytes      uint64 `json:"bytes"`
	Damaged    uint64 `json:"damaged"`
	Unreadable uint64 `json:"unreadable,omitempty"`
	// LastPass is the last that came to its end; nil before the first, and where an
	// earlier version kept the cursor.
	LastPass *ScrubPass `json:"lastPass,omitempty"`
}

// ScrubStatusKey is where the lease holder reports when the archive was last read.
const ScrubStatusKey = "scrub"

// ScrubStatus says when the scrub last read the whole archive, and how far it has come in
// reading it now.
type ScrubStatus struct {
	ReportedAt time.Time `json:"reportedAt"`
	// LastPass read the whole archive; nil before the first has ended.
	LastPass *ScrubPass `json:"lastPass,omitempty"`
	// Pass is under way; nil between two passes.
	Pass *ScrubPass `json:"pass,omitempty"`
}

// ScrubPass is one reading of the archive.
type ScrubPass struct {
	BegunAt time.Time `json:"begunAt"`
	// EndedAt is nil of one that is under way, and of one whose end an earlier version did
	// not note.
	EndedAt *time.Time `json:"endedAt,omitempty"`
	// Instrument and Day are read now, of one that is under way.
	Instrument string `json:"instrument,omitempty"`
	Day        Day    `json:"day,omitempty"`
	// Objects, Bytes, Damaged and Unreadable are as those of the ScrubCursor.
	Objects    uint64 `json:"objects"`
	Bytes      uint64 `json:"bytes"`
	Damaged    uint64 `json:"damaged"`
	Unreadable uint64 `json:"unreadable,omitempty"`
}

// Passes are the last pass that came to its end and the one that is under way; nil if there is none.
func (c ScrubCursor) Passes() (last, current *ScrubPass) {
	switch {
	case c.BegunAt.IsZero():
		return nil, nil
	case c.Done && c.LastPass == nil: // as an earlier version ends a pass
		return &ScrubPass{BegunAt: c.BegunAt, Objects: c.Objects, Bytes: c.Bytes, Damaged: c.Damaged}, nil
	case c.Done:
		return c.LastPass, nil
	default:
		return c.LastPass, &ScrubPass{BegunAt: c.BegunAt, Instrument: c.Instrument, Day: c.Day,
			Objects: c.Objects, Bytes: c.Bytes, Damaged: c.Damaged, Unreadable: c.Unreadable}
	}
}
