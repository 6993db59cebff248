// SPDX-License-Identifier: Apache-2.0

// Package damage words what a Site knows of damage to its archive. The archivist keeps
// one list, in the status bucket: substorm status has it from the Site's status, the
// commands of the archive and the report read it themselves, and all say the same.
package damage

import (
	"fmt"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Known is what is known of damaged and missing objects, and when the archive was last checked.
type Known struct {
	// Confirmed objects, which the ledger counts, how many of them are missing, and those
	// that were found and are not confirmed yet.
	Confirmed   int `json:"confirmed"`
	Missing     int `json:"missing"`
	Unconfirmed int `json:"unconfirmed"`
	// LastPass of the archivist's scrub read the whole archive, and Pass is under way; nil if there is none.
	LastPass *wire.ScrubPass `json:"lastPass,omitempty"`
	Pass     *wire.ScrubPass `json:"pass,omitempty"`
}

// Add counts one object.
func (k *Known) Add(d wire.Damage) {
	switch {
	case !d.Confirmed:
		k.Unconfirmed++
	default:
		k.Confirmed++
		if d.Cause == wire.DamageMissing {
			k.Missing++
		}
	}
}

// String says what is known of damage, and when the archive was last checked.
func (k Known) String() string {
	found := "no damage is known"
	if k.Confirmed+k.Unconfirmed > 0 {
		found = fmt.Sprintf("%d objects are known to be damaged, %d of them missing; %d more are to be confirmed", k.Confirmed, k.Missing, k.Unconfirmed)
	}
	return found + "; " + k.describeLastPass()
}

// describeLastPass says when the scrub last read the archive.
func (k Known) describeLastPass() string {
	switch last, pass := k.LastPass, k.Pass; {
	case last == nil && pass == nil:
		return "no archivist has read the archive yet"
	case last == nil:
		return "the archivist's scrub has not read the whole archive yet: it reads since " + progress(pass)
	case pass == nil:
		return "the archivist's scrub last read " + describePass(last)
	default:
		return "the archivist's scrub last read " + describePass(last) + "; it reads it again since " + progress(pass)
	}
}

func describePass(p *wire.ScrubPass) string {
	text := "the whole archive from " + stamp(p.BegunAt)
	if p.EndedAt != nil {
		text += " to " + stamp(*p.EndedAt)
	} else {
		text += " on" // an earlier version did not note the end
	}
	return fmt.Sprintf("%s: %d objects%s", text, p.Objects, without(p))
}

func progress(p *wire.ScrubPass) string {
	text := stamp(p.BegunAt)
	if p.Instrument != "" {
		text += fmt.Sprintf(", and has come to %s of %s", p.Day, p.Instrument)
	}
	return fmt.Sprintf("%s: %d objects%s", text, p.Objects, without(p))
}

func without(p *wire.ScrubPass) string {
	if p.Unreadable == 0 {
		return ""
	}
	return fmt.Sprintf(", without %d days whose manifest cannot be read (substorm archive rebuild makes it anew)", p.Unreadable)
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }
