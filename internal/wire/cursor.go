// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"time"
)

// The keys of the archivist's other cursors: how far the notices are listed in
// manifests, how far the telemetry of all channels is in announced segments
// (both a StreamCursor), how far the bucket was swept (a SweepCursor), and which
// days are compacted (a CompactCursor).
const (
	NoticeCursorKey      = "notices"
	ObservationCursorKey = "observations"
	SweepCursorKey       = "sweep"
	CompactCursorKey     = "compact"
)

// RefillCursorKey is the key of the RefillCursor.
const RefillCursorKey = "refill"

// RefillCursor says which notice stream was refilled last. A stream that was deleted and recreated lost what it held: the archivist
// announces it again, from the manifests.
type RefillCursor struct {
	// Epoch of the stream.
	Epoch string `json:"epoch"`
	// Done: the stream holds, or held, everything that is to be announced again.
	Done bool `json:"done,omitempty"`
	// Held: the stream is older than the cursor, which was lost, and may hold what is to be announced again.
	Held bool `json:"held,omitempty"`
	// Since: objects received earlier are not announced again.
	Since time.Time `json:"since,omitzero"`
	// Through and ThroughID are the receive time and message ID of the last notice that is in the stream for certain; notices are ordered
	// by both. Sequence is the sequence of the stream's last message then.
	Through   time.Time `json:"through,omitzero"`
	ThroughID string    `json:"throughID,omitempty"`
	Sequence  uint64    `json:"sequence,omitempty"`
	// Announced so far.
	Announced uint64 `json:"announced,omitempty"`
}

// StreamCursor says how far a stream is archived.
type StreamCursor struct {
	// Epoch of the stream that Next belongs to.
	Epoch string `json:"epoch"`
	// Next is the first stream sequence that is not archived.
	Next uint64 `json:"next"`
	// Undecided is the sequence of the first request before Next whose decision is not published; 0 if there is none. Only the cursor of
	// notices has it.
	Undecided uint64 `json:"undecided,omitempty"`
}

// SweepCursor says what was compared with the manifests.
type SweepCursor struct {
	// Whole is when the last comparison of the whole bucket began, and Recent
	// when the last one of recent days did.
	Whole  time.Time `json:"whole"`
	Recent time.Time `json:"recent"`
	// Epoch is the epoch of the notice stream when the last comparison of the whole bucket began: what was announced in an earlier one
	// and not listed is lost with it.
	Epoch string `json:"epoch,omitempty"`
}

// CompactCursor says which closed days need no more work.
type CompactCursor struct {
	// Through is the last day of those that are compacted, and free of what that
	// replaced.
	Through Day `json:"through"`
}

// SegmentCursorKey is the key of a channel's SegmentCursor.
func SegmentCursorKey(instrument, channel string) string {
	return "segment." + instrument + "." + channel
}

// SegmentCursor says how far a channel's telemetry is cut into segments. It is
// written before a segment (Planned set) and after its notice (Planned empty),
// so that a cut repeated after a kill is the same object.
type SegmentCursor struct {
	// Epoch of the stream that Next belongs to.
	Epoch string `json:"epoch"`
	// Next is the first stream sequence not yet in an announced segment.
	Next uint64 `json:"next"`
	// Planned is the cut that is on its way, with the counts that the headers of
	// its messages say.
	Planned *SegmentRange `json:"planned,omitempty"`
	// PlannedDay is the UTC day of the planned cut.
	PlannedDay Day `json:"plannedDay,omitempty"`
	// Stored has, for days that are still open, the absolute totals of
	// datagrams in announced segments, and of those that are in none by cause:
	// the ledger's column.
	Stored map[Day]Totals `json:"stored,omitempty"`
	// Published has the telemetry messages of the channel that are in segments, by
	// <gateway>/<incarnation>: one that comes again, however late, is not written again.
	Published map[string]Published `json:"published,omitempty"`
}

// Published says which publications of an incarnation were seen, see PublicationID.
type Published struct {
	// Floor: all numbers up to it were seen, or never will be.
	Floor uint64 `json:"floor,omitempty"`
	// Above are the numbers above Floor that were seen, ascending: each as the
	// difference to the one before, the first to Floor.
	Above []uint64 `json:"above,omitempty"`
	// At is when the stream took the newest of them.
	At time.Time `json:"at,omitzero"`
}
