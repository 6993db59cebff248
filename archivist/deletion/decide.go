// SPDX-License-Identifier: Apache-2.0

package deletion

import (
	"fmt"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Object is an object of the bucket that is to be deleted, with what is known of it.
type Object struct {
	Key    string
	Reason wire.DeletionReason
	// Instrument whose data it is; empty for what several share.
	Instrument string
	// Takes are the instruments that lose bytes for good with the object, because nothing else in
	// the archive holds them: legal hold of one of them keeps it.
	Takes []string
	// Named is the ID of an object whose bytes are kept and that a manifest lists under this key;
	// Only is the ID of one whose bytes are kept and are known to be only here.
	Named, Only string
	// Day is the day of receipt of a pack with members that may still be announced out of a spool;
	// empty if that does not matter.
	Day wire.Day
	// KeptUntil is until when it is kept in any case.
	KeptUntil time.Time
	// Instead is where the bytes are kept, for the record.
	Instead string
}

// Why an object is kept.
const (
	// KeptForeign: the object under the key was not written by Substorm.
	KeptForeign = "Foreign"
	// KeptNamed: a manifest names it as the place of bytes that are kept.
	KeptNamed = "Named"
	// KeptOnly: it holds the only copy of bytes that are kept.
	KeptOnly = "OnlyCopy"
	// KeptYoung: it was stored too recently.
	KeptYoung = "Young"
	// KeptSpooled: a spool may hold objects whose bytes are in it.
	KeptSpooled = "Spooled"
	// KeptHold: an instrument is under legal hold, or it is unknown whether it is.
	KeptHold = "LegalHold"
	// KeptUnproven: the caller does not give what a deletion for its reason requires.
	KeptUnproven = "Unproven"
	// KeptRefused: the store refuses to delete it. It is tried again whenever it is asked for.
	KeptRefused = "Refused"
)

// KeptReasons are all of them.
var KeptReasons = []string{KeptForeign, KeptNamed, KeptOnly, KeptYoung, KeptSpooled, KeptHold, KeptUnproven, KeptRefused}

// Kept says why an object is not deleted.
type Kept struct{ Key, Why, Detail string }

// Error implements error.
func (k *Kept) Error() string { return fmt.Sprintf("%s is kept: %s: %s", k.Key, k.Why, k.Detail) }

// world is what decide asks beside the object: why nothing of an instrument may be lost,
// and why a spool may hold something of a day. Empty answers: it may, and none does.
type world struct {
	held    func(instrument string) string
	spooled func(day wire.Day) string
	now     time.Time
}

// decide says why an object must be kept; nil where it may be deleted.
func decide(o Object, w world) *Kept {
	kept := func(why, detail string) *Kept { return &Kept{o.Key, why, detail} }
	switch {
	case !wire.IsOurs(o.Key):
		return kept(KeptForeign, "Substorm did not write it")
	case o.Named != "":
		return kept(KeptNamed, "a manifest lists "+o.Named+" there")
	case o.Only != "":
		return kept(KeptOnly, "the bytes of "+o.Only+" are known to lie nowhere else")
	case w.now.Before(o.KeptUntil):
		return kept(KeptYoung, "it stays until "+wire.FormatTime(o.KeptUntil))
	}
	if o.Day != "" {
		if why := w.spooled(o.Day); why != "" {
			return kept(KeptSpooled, why)
		}
	}
	for _, instrument := range o.Takes {
		if why := w.held(instrument); why != "" {
			return kept(KeptHold, why)
		}
	}
	if what := missingProof(o); what != "" {
		return kept(KeptUnproven, fmt.Sprintf("a deletion as %s requires %s", o.Reason, what))
	}
	return nil
}

// missingProof returns what a deletion for the object's reason requires and the caller does not
// give; empty where all is there. A pack that was rewritten requires nothing: no bytes may be lost with it.
func missingProof(o Object) string {
	switch o.Reason {
	case wire.DeletedUnnamed:
		if o.KeptUntil.IsZero() || o.Day == "" {
			return "its age and the day of its members"
		}
	case wire.DeletedMoved, wire.DeletedDuplicate:
		if o.Instead == "" {
			return "the place that has its bytes"
		}
	case wire.DeletedPurged, wire.DeletedExpired:
		if len(o.Takes) == 0 {
			return "the instruments that lose bytes"
		}
	case wire.DeletedStaging, wire.DeletedUpload:
		if o.KeptUntil.IsZero() {
			return "its age"
		}
	case wire.DeletedRoot:
		if o.Instrument == "" {
			return "its instrument"
		}
	case wire.DeletedRewritten:
	default:
		return "a known reason"
	}
	return ""
}
