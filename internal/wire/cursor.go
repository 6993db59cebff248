// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/json"

// SegmentCursorKey is the key of a channel's SegmentCursor.
func SegmentCursorKey(instrument, channel string) string {
	return "segment." + instrument + "." + channel
}

// SegmentCursor says how far a channel's telemetry is cut into segments. It is
// written before a segment (Planned set) and after its notice (Planned empty),
// so that a cut repeated after a kill is the same object.
type SegmentCursor struct {
	Format int `json:"format"`
	// Epoch of the stream that Next belongs to.
	Epoch string `json:"epoch"`
	// Next is the first stream sequence not yet in an announced segment.
	Next uint64 `json:"next"`
	// Planned is the cut that is on its way.
	Planned *SegmentRange `json:"planned,omitempty"`
	// PlannedDay is the UTC day of the planned cut.
	PlannedDay Day `json:"plannedDay,omitempty"`
	// Stored has, for days that are still open, the absolute totals of
	// datagrams in announced segments: the ledger's column.
	Stored map[Day]Totals `json:"stored,omitempty"`
}

// Encode writes the cursor as JSON.
func (c SegmentCursor) Encode() ([]byte, error) {
	c.Format = Format
	return json.Marshal(c)
}

// DecodeSegmentCursor reads a cursor. Errors: ErrMalformed, ErrNewerFormat.
func DecodeSegmentCursor(data []byte) (SegmentCursor, error) {
	return decode(data, func(c SegmentCursor) int { return c.Format })
}
