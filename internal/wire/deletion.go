// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// DeletionReason says why the archivist deletes an object of the bucket.
type DeletionReason string

// The reasons.
const (
	// DeletedUnnamed: a pack that no manifest names. Its members are listed in other
	// places, or as duplicates, or were purged.
	DeletedUnnamed DeletionReason = "Unnamed"
	// DeletedRewritten: a pack that was rewritten without what was purged.
	DeletedRewritten DeletionReason = "Rewritten"
	// DeletedMoved: an object of its own whose bytes are in a pack by now.
	DeletedMoved DeletionReason = "Moved"
	// DeletedDuplicate: an object that is equal to an earlier one, which stays.
	DeletedDuplicate DeletionReason = "Duplicate"
	// DeletedPurged: the object was purged by request. DeletedExpired: spec.archive.expiry keeps its day no longer.
	DeletedPurged  DeletionReason = "Purged"
	DeletedExpired DeletionReason = "Expired"
	// DeletedStaging: staging that is abandoned. DeletedUpload: an upload that received nothing for as long as it is kept. DeletedRoot:
	// an old root of an index.
	DeletedStaging DeletionReason = "Staging"
	DeletedUpload  DeletionReason = "Upload"
	DeletedRoot    DeletionReason = "Root"
)

// DeletionReasons are all of them.
var DeletionReasons = []DeletionReason{DeletedUnnamed, DeletedRewritten, DeletedMoved, DeletedDuplicate, DeletedPurged, DeletedExpired,
	DeletedStaging, DeletedUpload, DeletedRoot}

// DeletionsPrefix is what all deletion records of a Site begin with, and DeletionPrefix
// those of one UTC day of deletion.
func DeletionsPrefix(site string) string { return "deletions/" + site + "/" }

// DeletionPrefix is what the records of a day begin with.
func DeletionPrefix(site string, day Day) string { return DeletionsPrefix(site) + string(day) + "/" }

// DeletionKey is the key of a deletion record: deletions/<site>/<yyyy-mm-dd>/<13-digit
// ms>-<gateway>-<incarnation>-<n>.jsonl.zst, n counting the records of one lease.
func DeletionKey(h DeletionHeader, number uint64) string {
	return fmt.Sprintf("%s%013d-%s-%s-%d.jsonl.zst", DeletionPrefix(h.Site, DayOf(h.At)), h.At.UnixMilli(), h.Gateway, h.Incarnation, number)
}

// DeletionHeader is the first line of a deletion record.
type DeletionHeader struct {
	Format int    `json:"format"`
	Site   string `json:"site"`
	// At is when the record was written, right before the objects were deleted. If the process dies in between, or the store refuses to
	// delete them, some of them remain: the next archivist decides again.
	At time.Time `json:"at"`
	// Gateway and Incarnation deleted them.
	Gateway     string `json:"gateway"`
	Incarnation string `json:"incarnation"`
}

// DeletedObject is a further line.
type DeletedObject struct {
	Key    string         `json:"key"`
	Reason DeletionReason `json:"reason"`
	// Instrument whose data it is; absent for what several share.
	Instrument string `json:"instrument,omitempty"`
	// Instead is where the bytes are kept, by key or ID, where that is one place.
	Instead string `json:"instead,omitempty"`
}

// Deletions is a record of objects that the archivist was about to delete: JSON lines, compressed
// with zstd. Records are created and never changed.
type Deletions struct {
	Header  DeletionHeader
	Objects []DeletedObject
}

// Encode writes the record.
func (d Deletions) Encode() ([]byte, error) {
	d.Header.Format = Format
	return encodeLines(d.Header, d.Objects, false) // keys stay as they are
}

// DecodeDeletions reads a record. Errors: ErrMalformed, ErrNewerFormat, and those of r,
// which say nothing about the record.
func DecodeDeletions(r io.Reader) (Deletions, error) {
	return decodeLines(r, "deletion record", maxDayFile, readDeletions)
}

func readDeletions(r io.Reader) (d Deletions, err error) {
	lines := json.NewDecoder(r)
	if d.Header, err = decodeHeader[DeletionHeader](lines, "deletion record"); err != nil {
		return d, err
	}
	for {
		var o DeletedObject
		err := lines.Decode(&o)
		if errors.Is(err, io.EOF) {
			return d, nil
		}
		if err != nil || o.Key == "" {
			return Deletions{}, fmt.Errorf("deletion record: line %d: %w: %v", len(d.Objects)+2, ErrMalformed, err)
		}
		d.Objects = append(d.Objects, o)
	}
}
