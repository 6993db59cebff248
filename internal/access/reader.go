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
)

// consumerPrefix begins the name of a FeedConsumer wherever identities of several kinds
// are named: a reader's name is a DNS label and has no colon.
const consumerPrefix = "consumer:"

// Reader is who asks. The zero value is somebody who has shown nothing.
type Reader struct {
	kind kind
	name string
	// instruments that a FeedConsumer selects: it has no rights of its own to others.
	instruments map[string]bool
}

// SiteReader is a reader that the Site names.
func SiteReader(name string) Reader { return Reader{kind: siteReader, name: name} }

// Consumer is a FeedConsumer, whose Feed and filter select instruments. Do not write to
// them any more.
func Consumer(name string, instruments map[string]bool) Reader {
	return Reader{kind: consumer, name: name, instruments: instruments}
}

// Anonymous says whether nobody in particular asks.
func (r Reader) Anonymous() bool { return r.kind == anonymous }

// String is the reader's name as spec.access.readers of an Instrument has it: that of a
// FeedConsumer begins with "consumer:". It is empty for who has shown nothing. No two
// identities have the same.
func (r Reader) String() string {
	if r.kind == consumer {
		return consumerPrefix + r.name
	}
	return r.name
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
	name, isConsumer := ConsumerOf(text)
	if r.kind == consumer {
		return isConsumer && name == r.name
	}
	return !isConsumer && text == r.name
}

// concerns says whether a reader may have rights of its own to an instrument.
func (r Reader) concerns(instrument string) bool {
	return r.kind != consumer || r.instruments[instrument]
}
