// SPDX-License-Identifier: Apache-2.0

// Package mirrorindex spells what a feed server tells mirrors of its archive: which
// Instruments there are, which days each has, and what each day holds. It is a tree of tags:
// a mirror compares the tag of the whole, then those of Instruments, of months and of days,
// and asks for the lists of the days that changed. If only newer objects were added to a
// day, the list has these alone.
//
// Questions and answers are JSON lines. Every answer ends with a line {"end":true}: one
// without it is not whole. Readers ignore fields that they do not know, and refuse another
// Format.
package mirrorindex

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Format is the version of all documents.
const Format = 1

// The paths of the endpoints, and the media type of their answers.
const (
	RootPath    = "/mirror/"
	DaysPath    = "/mirror/days"
	ListsPath   = "/mirror/lists"
	ObjectsPath = "/mirror/objects.tar"
	MediaLines  = "application/jsonl"
)

// MaxQuestionBytes are those of all lines of a question: a mirror asks again for the rest.
const MaxQuestionBytes = 16 << 10

// ErrFormat: a document has another format than this program reads.
var ErrFormat = errors.New("the other side uses another format of the mirror index: upgrade the older of the two")

// Root is what GET RootPath answers, with an ETag that changes with any Tag.
type Root struct {
	Format int    `json:"format"`
	Site   string `json:"site"`
	// Now is the server's clock, so that one that is far off is noticed.
	Now time.Time `json:"now"`
	// Bundles is how many bundles a client is sent at the same time while no other client asks for any. Further requests wait.
	Bundles int `json:"bundles"`
	// Reader is the name of who asks, as spec.access.readers of an Instrument has it. It is absent of who has shown nothing, and of a server that
	// is older than this member.
	Reader string `json:"reader,omitempty"`
	// Confirms: the Site waits for who asks before anything expires, and who asks is to say at ConfirmedPath what it has.
	Confirms bool `json:"confirms,omitempty"`
	// Ledger, with Confirms, names the ledger in which that stands. It is another one once the Site has lost its ledger: what was
	// confirmed before is to be confirmed again.
	Ledger      string     `json:"ledger,omitempty"`
	Instruments []RootLine `json:"instruments"`
}

// RootLine is an Instrument of the Site whose archive the client may read. Instruments of other Sites are not listed.
type RootLine struct {
	Instrument string `json:"instrument"`
	// Tag changes with whatever the archive holds of it, and with its rights.
	Tag string `json:"tag"`
}

// DaysQuestion is a line of what is posted to DaysPath: the months and newest days of an
// Instrument, or with Month (yyyy-mm) its days in that.
type DaysQuestion struct {
	Instrument string `json:"instrument"`
	Month      string `json:"month,omitempty"`
}

// DaysLine is a line of the answer. The first of a question has Instrument, and the rest
// one of Month and Day.
type DaysLine struct {
	Instrument string            `json:"instrument,omitempty"`
	Tag        string            `json:"tag,omitempty"`
	Rights     *wire.RightsEntry `json:"rights,omitempty"`
	// Access is who may read it, but for the names of readers. A server that does not say it
	// is older than this member.
	Access *wire.AccessEntry `json:"access,omitempty"`
	// About, Station and MediaType are the Instrument's own.
	About     *wire.AboutEntry `json:"about,omitempty"`
	Station   string           `json:"station,omitempty"`
	MediaType string           `json:"mediaType,omitempty"`
	// Gone: who asks may not read the Instrument's archive, or there is no such Instrument. Absent: it is the second. A server
	// that does not say it may mean either, so a mirror closes what is gone and not absent.
	Gone   bool `json:"gone,omitempty"`
	Absent bool `json:"absent,omitempty"`

	Month string   `json:"month,omitempty"`
	Day   wire.Day `json:"day,omitempty"`
	// Entries and Bytes as the manifests count them; ObservedFrom and ObservedTo bound the
	// observation times, where any is known. If they include data under embargo for the
	// client, there are no figures, and the bounds are those of all that may have been
	// observed.
	Entries      int        `json:"entries,omitempty"`
	Bytes        int64      `json:"bytes,omitempty"`
	ObservedFrom *time.Time `json:"observedFrom,omitempty"`
	ObservedTo   *time.Time `json:"observedTo,omitempty"`

	End bool `json:"end,omitempty"`
}

// ListQuestion is a line of what is posted to ListsPath: what there is of a day, or with
// Have what is new there.
type ListQuestion struct {
	Instrument string   `json:"instrument"`
	Day        wire.Day `json:"day"`
	// Have sums up the list that a mirror has.
	Have *Sum `json:"have,omitempty"`
}

// ListLine is a line of the answer. The first of a day has Instrument and Day.
type ListLine struct {
	Instrument string   `json:"instrument,omitempty"`
	Day        wire.Day `json:"day,omitempty"`
	Tag        string   `json:"tag,omitempty"`
	// More: the lines below are to be added to those that Have sums up; else they are all.
	More bool `json:"more,omitempty"`
	Gone bool `json:"gone,omitempty"`

	*Entry

	End bool `json:"end,omitempty"`
}

// Cause says who decided that the bytes of an object are not served any more. It does not name persons: an index may be public.
type Cause string

// The values of Cause.
const (
	// CauseRequest: a request retracted or purged it.
	CauseRequest Cause = "Request"
	// CauseRetention: the Instrument keeps nothing longer.
	CauseRetention Cause = "Retention"
)

// Entry is what a list says of an object.
type Entry struct {
	// Path is where it is published, below its Instrument.
	Path string `json:"path"`
	// State is a wire.Record's Outcome. It is absent of what is current.
	State  wire.State `json:"state,omitempty"`
	Reason string     `json:"reason,omitempty"`
	// Cause of StateRetracted, StatePurged and StateExpired. A server that does not say it is older than this member: what it lists
	// as purged may have expired.
	Cause Cause `json:"cause,omitempty"`
	// Retracted: the object expired after it was retracted, and was not restored.
	Retracted bool `json:"retracted,omitempty"`
	// RetractedAt is when the object was retracted by request, as its archive says.
	RetractedAt *time.Time `json:"retractedAt,omitempty"`
	// RestoredAt is when the object was last restored, as its archive says.
	RestoredAt *time.Time `json:"restoredAt,omitempty"`

	Size         int64             `json:"size"`
	Digest       wire.Digest       `json:"sha256"`
	ID           string            `json:"id"`
	MediaType    string            `json:"mediaType,omitempty"`
	Version      int               `json:"version,omitempty"`
	ObservedFrom *time.Time        `json:"observedFrom,omitempty"`
	ObservedTo   *time.Time        `json:"observedTo,omitempty"`
	ReceivedAt   time.Time         `json:"receivedAt"`
	TimeSource   wire.TimeSource   `json:"timeSource,omitempty"`
	Completeness wire.Completeness `json:"completeness,omitempty"`
	// Imported: the object came with a tree that was imported, whose names are believed however far their times lie from the receipt.
	Imported bool `json:"imported,omitempty"`
}

// EntryOf returns the entry of a record that is published under a path.
func EntryOf(path string, r *wire.Record) Entry {
	e := Entry{
		Path: path, Size: r.Size, Digest: r.Digest, ID: r.ID, MediaType: r.MediaType, Version: r.Version,
		ObservedFrom: r.ObservedFrom, ObservedTo: r.ObservedTo, ReceivedAt: r.ReceivedAt, TimeSource: r.TimeSource, Completeness: r.Completeness,
		Imported: r.Gateway == wire.ImportWriter,
	}
	if e.RestoredAt = r.RestoredAt; r.RestoredAt != nil && r.RetractedAt != nil && !r.RestoredAt.After(*r.RetractedAt) { // the clock was ahead
		after := r.RetractedAt.Add(time.Nanosecond)
		e.RestoredAt = &after
	}
	if r.IsRetraction() {
		e.RetractedAt = r.RetractedAt
	}
	switch outcome := r.Outcome(); outcome {
	case wire.StateCurrent:
	case wire.StateRetracted, wire.StatePurged:
		e.State, e.Reason, e.Cause = outcome, r.Reason, CauseRequest
	case wire.StateExpired:
		e.State, e.Reason, e.Cause, e.Retracted = outcome, r.Reason, CauseRetention, r.IsRetraction()
	default:
		e.State, e.Reason = outcome, r.Reason
	}
	return e
}

// Observed returns the first and the last instant that an object observes, as Record.Observed does.
func (e *Entry) Observed() (from, to time.Time) {
	r := wire.Record{ObservedFrom: e.ObservedFrom, ObservedTo: e.ObservedTo, ReceivedAt: e.ReceivedAt}
	if e.Imported {
		r.Gateway = wire.ImportWriter
	}
	return r.Observed()
}

// Removed says whether the object was retracted or purged by request, which a mirror follows. An object that only expired there is not
// removed, nor is one for which the index states no cause.
func (e *Entry) Removed() bool {
	return e.IsPurge() || e.IsRetraction()
}

// IsPurge says whether the object was purged by request.
func (e *Entry) IsPurge() bool { return e.State == wire.StatePurged && e.Cause == CauseRequest }

// Reverts says whether a list with this entry no longer names a retraction or purge of the same object that an earlier list named,
// although the object was not restored after it. A purged object cannot be restored. A list also reverts if the last retraction that it
// names is an earlier one: the object was restored between the two, and the backup may be of that time. So does the list of an archive
// whose clock was ahead: only a restoration after that time is followed.
func (e *Entry) Reverts(before *Entry) bool {
	if e.IsRetraction() {
		return before.IsPurge() || before.IsRetraction() && e.RetractedAt != nil && before.RetractedAt != nil && before.RetractedAt.After(*e.RetractedAt)
	}
	state := e.Is()
	stands := state == wire.StateCurrent || state == wire.StateSuperseded || state == wire.StateExpired
	return stands && (before.IsPurge() || before.IsRetraction() && !e.RestoredAfter(before.RetractedAt))
}

// RestoredAfter says whether the object was restored by request after some instant; nil: ever.
func (e *Entry) RestoredAfter(at *time.Time) bool {
	return e.RestoredAt != nil && (at == nil || e.RestoredAt.After(*at))
}

// IsRetraction says whether the object was retracted by request, and neither restored nor purged later.
func (e *Entry) IsRetraction() bool {
	return e.State == wire.StateRetracted && e.Cause == CauseRequest || e.State == wire.StateExpired && e.Retracted
}

// Is says in which state an object is.
func (e *Entry) Is() wire.State {
	if e.State == "" {
		return wire.StateCurrent
	}
	return e.State
}

// Sum is what a list comes to: two that are equal have equal entries, in any order. It does not protect against a party that chooses the
// entries; only the server itself does.
type Sum struct {
	Count int `json:"count"`
	// Content adds up the digests of the entries (wire.Digest.Plus).
	Content wire.Digest `json:"content"`
	// Last is when the last of them was received.
	Last time.Time `json:"last"`
}

// Add counts an entry in.
func (s *Sum) Add(e *Entry) {
	s.Count++
	s.Content = s.Content.Plus(e.digest())
	if e.ReceivedAt.After(s.Last) {
		s.Last = e.ReceivedAt.UTC()
	}
}

// Same says whether the entries are.
func (s Sum) Same(o Sum) bool { return s.Count == o.Count && s.Content == o.Content }

// removedMark follows in the text of an Entry that is Removed, and then the time of a retraction: an object may be restored and retracted again
// between two runs of a mirror.
const removedMark = 1

// digest is of what a mirror acts upon.
func (e *Entry) digest() wire.Digest {
	text := make([]byte, 0, 256)
	text = append(text, e.Digest[:]...)
	text = append(strconv.AppendInt(text, e.Size, 10), 0)
	for _, s := range []string{e.Path, string(e.State), e.ID} {
		text = append(append(text, s...), 0)
	}
	if e.Removed() {
		text = append(text, removedMark)
	}
	if e.IsRetraction() && e.RetractedAt != nil {
		text = strconv.AppendInt(text, e.RetractedAt.UnixNano(), 10)
	}
	return sha256.Sum256(text)
}

// SumOf sums up a list.
func SumOf(all []Entry) (s Sum) {
	for i := range all {
		s.Add(&all[i])
	}
	return s
}

// ObjectsQuestion is a line of what is posted to ObjectsPath: the current objects of a day whose
// size is not above Below, where that is set; or those with some IDs, which may also be superseded.
// The answer is a bundle without lists: a tar with a file <site>/<instrument>/<path> for each, in
// any order, and at its end EndName below <site>. Each has its ID as the PAX record PAXID: several
// may have one path. If an object is asked for and is not in the bundle, the server cannot give its
// bytes: it was retracted meanwhile, or is damaged in the store.
type ObjectsQuestion struct {
	Instrument string   `json:"instrument"`
	Day        wire.Day `json:"day"`
	Below      int64    `json:"below,omitempty"`
	IDs        []string `json:"ids,omitempty"`
}

const (
	// EndName is the last file of a bundle, below the Site's folder: one without it is not
	// whole.
	EndName = "bundle.d/end.json"
	// PAXID names the PAX record of a file that has an object's ID.
	PAXID = "SUBSTORM.id"
)

// MonthOf is a day's month.
func MonthOf(d wire.Day) string {
	if len(d) < len("2006-01") {
		return ""
	}
	return string(d[:len("2006-01")])
}

// CheckMonth says whether a text is one. Errors name it.
func CheckMonth(month string) error {
	if _, err := time.Parse("2006-01", month); err != nil {
		return fmt.Errorf("%.20q is not a month such as 2026-11", month)
	}
	return nil
}
