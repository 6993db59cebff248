// SPDX-License-Identifier: Apache-2.0

// Package access says who may read an instrument's data. One function answers for
// every endpoint: live feeds, and all that the archive is read through.
package access

import (
	"slices"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Endpoint is a read path to an instrument's data.
type Endpoint int

// The kinds of endpoints: current data is served through Live, stored data through
// Archive.
const (
	Live Endpoint = iota
	Archive
)

// Verdict is what a reader is answered.
type Verdict int

// The verdicts, and what an endpoint of HTTP answers.
const (
	// Granted: the data.
	Granted Verdict = iota
	// NeedsReader, 401: the reader is anonymous, and identified readers may read.
	NeedsReader
	// Forbidden, 403: a reader asked who may not.
	Forbidden
	// Hidden, 404: the data is under embargo, and its name is not disclosed either.
	Hidden
)

// Decide says whether a reader may have an instrument's data through an endpoint. Live
// data has no embargo: what is under embargo is not live for anonymous readers, however
// public it will be. ObservedAt is when the data was observed, otherwise received;
// the zero time asks for the instrument as such. Entry is nil for instruments that
// declare nothing.
func Decide(endpoint Endpoint, reader Reader, instrument string, entry *wire.AccessEntry, observedAt, now time.Time) Verdict {
	access := entry.InForce()
	named := reader.Named(instrument, entry)
	embargo := access.Embargo()
	if embargo > 0 && !reader.inEmbargo(named) && !observedAt.IsZero() && now.Sub(observedAt) < embargo {
		return Hidden
	}
	level := access.Archive
	if endpoint == Live {
		level = access.Live
	}
	switch {
	case level == wire.AccessPublic, named:
		return Granted
	case reader.Anonymous():
		return NeedsReader
	case level == wire.AccessAuthenticated && reader.concerns(instrument):
		return Granted
	default: // restricted, not selected, or a word that this program does not know
		return Forbidden
	}
}

// Narrower returns the one of two levels that lets fewer in. Empty lets all in
// that the other does.
func Narrower(a, b string) string {
	order := []string{"", wire.AccessPublic, wire.AccessAuthenticated, wire.AccessRestricted}
	i, j := slices.Index(order, a), slices.Index(order, b)
	switch {
	case i < 0:
		return a
	case j < 0 || j > i:
		return b
	default:
		return a
	}
}
