// SPDX-License-Identifier: Apache-2.0

// Package session serves one connection: what comes next in its streams, what
// of that it may have, what its flow control makes of it, and when it is written.
// It knows nothing of how.
package session

import (
	"time"

	"github.com/substorm/substorm/feed-server/hub"
	"github.com/substorm/substorm/internal/wire"
)

// Entry is one thing that a connection is given: a message, or a gap record.
type Entry struct {
	Message *hub.Message
	// Gap is set where Message is nil: the record as JSON.
	Gap []byte
	// Replaced and Sampled datagrams or notices of the same source are not given.
	Replaced, Sampled uint64
	// Token is the place behind the entry, or one before it where others that came
	// before are still to be given.
	Token wire.FeedToken
}

// Kind of what the entry holds.
func (e Entry) Kind() wire.RecordKind {
	if e.Message == nil {
		return wire.RecordGap
	}
	return e.Message.Kind
}

// Payload of the entry as stored in the stream.
func (e Entry) Payload() []byte {
	if e.Message == nil {
		return e.Gap
	}
	return e.Message.Data
}

// Filter is what a connection may have.
type Filter struct {
	Notices, Telemetry bool
	// Backfill: notices of backfill, too.
	Backfill bool
	// Channels of telemetry; nil: all.
	Channels map[string]bool
	// Site whose Instruments they are, and how long what is observed is kept from the
	// connection. Leaves stand there as wire.LeafInstruments.
	Site        string
	Instruments map[string]time.Duration
}

// Wants reports whether a connection may have a message now.
func (f *Filter) Wants(m *hub.Message, now time.Time) bool {
	name := m.Instrument
	if m.Site != f.Site {
		name = m.Leaf
	}
	embargo, ok := f.Instruments[name]
	switch {
	case !ok:
		return false
	case m.Backfill && !f.Backfill:
		return false
	case m.Kind == wire.RecordNotice && !f.Notices, m.Kind == wire.RecordTelemetry && !f.Telemetry, m.Kind == 0:
		return false
	case m.Kind == wire.RecordTelemetry && f.Channels != nil && !f.Channels[m.Channel]:
		return false
	}
	return embargo == 0 || now.Sub(m.Time()) >= embargo
}
