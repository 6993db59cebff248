// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Step is a column of the ledger.
type Step string

// The steps, in the order in which data passes them. Repeated is no step of
// its own: it is what the manifest's writer withdrew of what was announced.
const (
	StepReceived  Step = "received"
	StepStored    Step = "stored"
	StepAnnounced Step = "announced"
	StepRepeated  Step = "repeated"
	// StepDamaged is no step either: what was stored and is not any more what was
	// received, as the scrub found it.
	StepDamaged Step = "damaged"
	// StepMirrored is what a partner has confirmed that it has. Its writer is named as the
	// partner. An entry that says less than is stored, repeats apart, says that the rest
	// is owed: it is there, with nothing, before anything is mirrored.
	StepMirrored Step = "mirrored"
)

// UnknownInstrument stands in the ledger for what no instrument claims. It is
// no DNS label, so no instrument can have its name.
const UnknownInstrument = "_unknown"

// UnknownChannel stands in the place of a channel for telemetry messages whose
// subject names none. It is no label, so no channel can have its name.
const UnknownChannel = "_unknown"

// ArchivistWriter stands in the place of a gateway in ledger columns that the
// lease holder writes: stored datagrams, and repeats.
const ArchivistWriter = "_archivist"

// ImportWriter stands in the place of a gateway for trees that were imported: in
// records, and in ledger columns.
const ImportWriter = "_import"

// LedgerKey is <instrument>.<day>.<step>.<writer>. The writer is a gateway pod,
// ArchivistWriter, ImportWriter or, of StepMirrored, a partner; each writes only its own
// keys.
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
	Format int `json:"format"`
	// Incarnations has the totals of each life of the writer.
	Incarnations map[string]Totals `json:"incarnations"`
}

// Totals are counts since the beginning of an incarnation's day.
type Totals struct {
	Objects     uint64 `json:"objects,omitempty"`
	ObjectBytes uint64 `json:"objectBytes,omitempty"`
	// Digest is the sum of the objects' digests, see Digest.Plus.
	Digest        Digest `json:"digest"`
	Datagrams     uint64 `json:"datagrams,omitempty"`
	DatagramBytes uint64 `json:"datagramBytes,omitempty"`

	// Of StepReceived only; Dropped also of StepStored.
	// Acknowledged objects are those whose receipt could be written.
	Acknowledged uint64 `json:"acknowledged,omitempty"`
	// Unfinished objects began and were never receipted; their bytes by cause.
	Unfinished      map[Cause]uint64 `json:"unfinished,omitempty"`
	UnfinishedBytes uint64           `json:"unfinishedBytes,omitempty"`
	// Dropped datagrams by cause. Of StepStored: those that were announced and
	// are in no segment (CauseUndecodable, CauseStreamGone).
	Dropped map[Cause]uint64 `json:"dropped,omitempty"`
	// Unknown datagrams were read and never acknowledged by JetStream: they
	// were in memory when the gateway was killed.
	Unknown uint64 `json:"unknown,omitempty"`
}

// Plus adds two totals.
func (t Totals) Plus(o Totals) Totals {
	t.Objects += o.Objects
	t.ObjectBytes += o.ObjectBytes
	t.Digest = t.Digest.Plus(o.Digest)
	t.Datagrams += o.Datagrams
	t.DatagramBytes += o.DatagramBytes
	t.Acknowledged += o.Acknowledged
	t.Unfinished = plusCounts(t.Unfinished, o.Unfinished)
	t.UnfinishedBytes += o.UnfinishedBytes
	t.Dropped = plusCounts(t.Dropped, o.Dropped)
	t.Unknown += o.Unknown
	return t
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

// Encode writes the entry as JSON.
func (e LedgerEntry) Encode() ([]byte, error) {
	e.Format = Format
	return json.Marshal(e)
}

// DecodeLedgerEntry reads an entry. Errors: ErrMalformed, ErrNewerFormat.
func DecodeLedgerEntry(data []byte) (LedgerEntry, error) {
	return decode(data, func(e LedgerEntry) int { return e.Format })
}
