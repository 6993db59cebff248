// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Step is a column of the ledger.
type Step string

// The steps, in the order in which data passes them. Gateways count what they received; the
// rest is the archivist's, who takes it from manifests and streams and can do so again.
const (
	// StepReceived is counted by each gateway: objects that may be receipted, datagrams that
	// the stream of observations acknowledged.
	StepReceived Step = "received"
	// StepAnnounced has the objects that the manifests list, in whatever state, by the
	// incarnation that received them.
	StepAnnounced Step = "announced"
	// StepStored has the datagrams that are in segments, and those that are in the stream and
	// in no segment by cause, by channel. Objects are listed when they are stored: they have
	// no column of their own.
	StepStored Step = "stored"
	// StepDuplicates has what of the announced objects the manifest's writer marked as duplicates.
	StepDuplicates Step = "duplicates"
	// StepDamaged is no step either: what was stored and is not any more what was
	// received, as the scrub found it.
	StepDamaged Step = "damaged"
	// StepMirrored is what a partner has confirmed that it has. Its writer is named as the
	// partner. An entry that says less than is stored, duplicates apart, says that the rest
	// is owed: it is there, with nothing, before anything is mirrored.
	StepMirrored Step = "mirrored"
	// StepPulled is the same of a reader that pulls, which is named as the writer. A feed server writes it when the reader confirms.
	StepPulled Step = "pulled"
)

// pullerPrefix begins the name of a reader that pulls where those of partners stand. The name of a MirrorPartner has no underscore.
const pullerPrefix = "reader_"

// PullerName names a reader that pulls beside the partners that are pushed to.
func PullerName(reader string) string { return pullerPrefix + reader }

// IsPuller says whether the name of a partner is the name of a reader that pulls.
func IsPuller(partner string) bool { return strings.HasPrefix(partner, pullerPrefix) }

// UnknownInstrument stands in the ledger for what no instrument claims. It is
// no DNS label, so no instrument can have its name.
const UnknownInstrument = "_unknown"

// UnknownChannel stands in the place of a channel for telemetry messages whose
// subject names none. It is no label, so no channel can have its name.
const UnknownChannel = "_unknown"

// ArchivistWriter stands in the place of a gateway in the ledger's columns that the
// lease holder writes: all but StepReceived, StepMirrored and StepPulled.
const ArchivistWriter = "_archivist"

// ImportWriter stands in the place of a gateway for trees that were imported: in
// records, and in ledger columns, where ImportIncarnation stands for all runs.
const (
	ImportWriter      = "_import"
	ImportIncarnation = "import"
)

// UnknownIncarnation stands in the ledger for the incarnation of records that name none.
const UnknownIncarnation = "_unknown"

// LedgerIncarnation is the incarnation under which the ledger counts an object.
func LedgerIncarnation(r *Record) string {
	if r.Gateway == ImportWriter {
		return ImportIncarnation
	}
	return cmp.Or(r.Incarnation, UnknownIncarnation)
}

// LedgerKey is <instrument>.<day>.<step>.<writer>. The writer is a gateway pod,
// ArchivistWriter, ImportWriter or, of StepMirrored, a partner, of StepPulled a reader; each
// writes only its own keys.
func LedgerKey(instrument string, day Day, step Step, writer string) string {
	return instrument + "." + string(day) + "." + string(step) + "." + writer
}

// ParseLedgerKey reads what LedgerKey wrote.
func ParseLedgerKey(key string) (instrument string, day Day, step Step, writer string, err error) {
	p := strings.Split(key, ".")
	if len(p) != 4 || slices.Contains(p, "") {
		return "", "", "", "", fmt.Errorf("ledger key %q is not <instrument>.<day>.<step>.<writer>: %w", key, ErrMalformed)
	}
	if day, err = ParseDay(p[1]); err != nil {
		return "", "", "", "", fmt.Errorf("ledger key %q: %w", key, err)
	}
	return p[0], day, Step(p[2]), p[3], nil
}

// LedgerEntry holds one writer's absolute totals of one step.
type LedgerEntry struct {
	// Incarnations has the totals of each incarnation of the writer; of StepAnnounced those of each
	// incarnation of whichever gateway received the objects, of StepStored those of each channel.
	Incarnations map[string]Totals `json:"incarnations"`
}

// mirrorIncarnation stands in the place of an incarnation in the column of a partner: what it has is counted as a whole.
const mirrorIncarnation = "mirror"

// Mirrored is the column of a partner that has confirmed so much.
func Mirrored(has Totals) LedgerEntry {
	return LedgerEntry{Incarnations: map[string]Totals{mirrorIncarnation: has}}
}

// Totals are counts since the beginning of an incarnation's day.
type Totals struct {
	Objects     uint64 `json:"objects,omitempty"`
	ObjectBytes uint64 `json:"objectBytes,omitempty"`
	// Digest is the sum of the objects' digests, see Digest.Plus.
	Digest        Digest `json:"digest"`
	Datagrams     uint64 `json:"datagrams,omitempty"`
	DatagramBytes uint64 `json:"datagramBytes,omitempty"`
	// Segments, of StepMirrored and StepPulled only, is the sum of the digests of the segments that hold the datagrams. A column without it was
	// written by a program that did not compare segments.
	Segments Digest `json:"segments,omitzero"`

	// The following are for StepReceived only; Dropped also for StepStored.
	// Acknowledged objects are those whose receipt could be written.
	Acknowledged uint64 `json:"acknowledged,omitempty"`
	// Unfinished objects began and did not get into the archive, by cause: they were not
	// receipted, or are among the Resolved. UnfinishedBytes were read of them.
	Unfinished      map[Cause]uint64 `json:"unfinished,omitempty"`
	UnfinishedBytes uint64           `json:"unfinishedBytes,omitempty"`
	// Resolved of the received objects were in the gateway's spool and are not announced:
	// Unfinished says why (CauseCorrupt, CauseSpoolAbandoned, CauseDuplicate). An earlier
	// incarnation may have received them. Digest is less theirs.
	Resolved      uint64 `json:"resolved,omitempty"`
	ResolvedBytes uint64 `json:"resolvedBytes,omitempty"`
	// Dropped datagrams by cause. For StepStored: those that were announced and are in no
	// segment (CauseUndecodable, CauseStreamGone, CauseMessageDeleted).
	Dropped map[Cause]uint64 `json:"dropped,omitempty"`
	// Unknown datagrams were read, but it is unknown whether they are in the stream: the gateway was killed, or stopped, while they were
	// in transit.
	Unknown uint64 `json:"unknown,omitempty"`
	// Incomplete: the incarnation's counters were lost in part, as by a power cut. It
	// received no less than this.
	Incomplete bool `json:"incomplete,omitempty"`
}

// Plus adds two totals.
func (t Totals) Plus(o Totals) Totals {
	t.Objects += o.Objects
	t.ObjectBytes += o.ObjectBytes
	t.Digest = t.Digest.Plus(o.Digest)
	t.Datagrams += o.Datagrams
	t.DatagramBytes += o.DatagramBytes
	t.Segments = t.Segments.Plus(o.Segments)
	t.Acknowledged += o.Acknowledged
	t.Unfinished = plusCounts(t.Unfinished, o.Unfinished)
	t.UnfinishedBytes += o.UnfinishedBytes
	t.Resolved += o.Resolved
	t.ResolvedBytes += o.ResolvedBytes
	t.Incomplete = t.Incomplete || o.Incomplete
	t.Dropped = plusCounts(t.Dropped, o.Dropped)
	t.Unknown += o.Unknown
	return t
}

// AddCopy counts a copy of an object, as StepMirrored does: a segment by its datagrams.
func (t *Totals) AddCopy(r *Record) {
	if r.Segment != nil {
		t.Datagrams += r.Segment.Datagrams
		t.DatagramBytes += r.Segment.DatagramBytes
		t.Segments = t.Segments.Plus(r.Digest)
		return
	}
	t.Objects++
	t.ObjectBytes += uint64(max(0, r.Size))
	t.Digest = t.Digest.Plus(r.Digest)
}

// MinusCopies takes copies off that AddCopy has counted.
func (t Totals) MinusCopies(o Totals) Totals {
	t.Objects -= min(t.Objects, o.Objects)
	t.ObjectBytes -= min(t.ObjectBytes, o.ObjectBytes)
	t.Digest = t.Digest.Minus(o.Digest)
	t.Datagrams -= min(t.Datagrams, o.Datagrams)
	t.DatagramBytes -= min(t.DatagramBytes, o.DatagramBytes)
	t.Segments = t.Segments.Minus(o.Segments)
	return t
}

// SameObjects says whether two totals of copies are of the same objects.
func (t Totals) SameObjects(o Totals) bool { return t.Objects == o.Objects && t.Digest == o.Digest }

// SameSegments says whether two totals of copies are of the same segments.
func (t Totals) SameSegments(o Totals) bool {
	return t.Datagrams == o.Datagrams && t.Segments == o.Segments
}

func plusCounts(a, b map[Cause]uint64) map[Cause]uint64 {
	if len(a)+len(b) == 0 {
		return nil
	}
	sum := make(map[Cause]uint64, len(a)+len(b))
	for _, m := range []map[Cause]uint64{a, b} {
		for cause, n := range m {
			sum[cause] += n
		}
	}
	return sum
}

// Sum adds up all incarnations.
func (e LedgerEntry) Sum() Totals {
	var sum Totals
	for _, t := range e.Incarnations {
		sum = sum.Plus(t)
	}
	return sum
}
