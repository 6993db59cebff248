// SPDX-License-Identifier: Apache-2.0

package access

import (
	"slices"
	"strings"

	"github.com/substorm/substorm/internal/wire"
)

// kind is a kind of identity: names of different kinds are different identities.
type kind int

const (
	anonymous kind = iota
	// siteReader is a reader that the Site names.
	siteReader
	// consumer is a FeedConsumer.
	consumer
	// mirror is a MirrorPartner that is given data.
	mirror
)

// The prefixes of the names of FeedConsumers and MirrorPartners wherever identities of several kinds
// are named: a reader's name is a DNS label and has no colon.
const (
	consumerPrefix = "consumer:"
	mirrorPrefix   = "mirror:"
)

// Reader is who asks. The zero value is a reader that has presented no identity.
type Reader struct {
	kind kind
	name string
	// instruments that a FeedConsumer or MirrorPartner selects: it has no rights of its own to others.
	instruments map[string]bool
	// embargoed: a MirrorPartner is given data under embargo.
	embargoed bool
}

// SiteReader is a reader that the Site names.
func SiteReader(name string) Reader { return Reader{kind: siteReader, name: name} }

// Consumer is a FeedConsumer, whose Feed and filter select instruments. Do not write to
// them any more.
func Consumer(name string, instruments map[string]bool) Reader {
	return Reader{kind: consumer, name: name, instruments: instruments}
}

// Mirror is a MirrorPartner that is given what it selects of instruments: data under embargo only if the partner declares so, whichever
// readers an Instrument names; restricted data only if the Instrument names the partner. Do not write to instruments any more.
func Mirror(partner string, instruments map[string]bool, embargoed bool) Reader {
	return Reader{kind: mirror, name: partner, instruments: instruments, embargoed: embargoed}
}

// Anonymous says whether the reader has presented no identity.
func (r Reader) Anonymous() bool { return r.kind == anonymous }

// String is the reader's name in spec.access.readers of an Instrument: "consumer:" before the name of a FeedConsumer, "mirror:" before
// that of a MirrorPartner. It is empty for an anonymous reader. No two identities have the same name.
func (r Reader) String() string {
	switch r.kind {
	case consumer:
		return consumerPrefix + r.name
	case mirror:
		return mirrorPrefix + r.name
	default:
		return r.name
	}
}

// Is says whether two are one identity.
func (r Reader) Is(other Reader) bool { return r.kind == other.kind && r.name == other.name }

// ConsumerOf returns the FeedConsumer's name that a String has, and false for one of
// another kind.
func ConsumerOf(text string) (name string, ok bool) {
	name, ok = strings.CutPrefix(text, consumerPrefix)
	return name, ok && name != ""
}

// Named says whether an instrument's spec.access.readers has the reader. A FeedConsumer
// counts only where it selects the instrument.
func (r Reader) Named(instrument string, entry *wire.AccessEntry) bool {
	return entry != nil && !r.Anonymous() && r.concerns(instrument) && slices.ContainsFunc(entry.Readers, r.isWritten)
}

// isWritten says whether a name in spec.access.readers is the reader's.
func (r Reader) isWritten(text string) bool {
	if r.kind == siteReader && strings.Contains(text, ":") {
		return false // one of another kind
	}
	return text == r.String()
}

// inEmbargo says whether a reader may have data of an instrument while that is under embargo.
func (r Reader) inEmbargo(named bool) bool {
	if r.kind == mirror {
		return r.embargoed
	}
	return named
}

// concerns says whether a reader may have rights of its own to an instrument.
func (r Reader) concerns(instrument string) bool {
	return r.kind != consumer && r.kind != mirror || r.instruments[instrument]
}
