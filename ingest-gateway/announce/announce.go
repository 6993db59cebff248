// SPDX-License-Identifier: Apache-2.0

// Package announce publishes what a gateway received: notices of stored objects and telemetry messages, as CloudEvents
// on the Site's two base streams.
package announce

import (
	"context"
	"time"

	"github.com/substorm/substorm/ingest-gateway/archive/ledger"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// Config says who announces, and where.
type Config struct {
	Site, Gateway, Incarnation string
	Notices, Observations      *stream.Committer
	Ledger                     *ledger.Ledger
}

// Announcer publishes for one incarnation of a gateway, and counts what was announced in the ledger.
type Announcer struct{ cfg Config }

// New returns an Announcer.
func New(cfg Config) *Announcer { return &Announcer{cfg: cfg} }

// Telemetry is a message of one instrument and channel: datagrams of one UTC day.
type Telemetry struct {
	Instrument, Channel string
	// At is the receive time of the first datagram.
	At time.Time
	// Payload is as wire.AppendTelemetryHeader and AppendDatagram made it. It must not change until the message is settled.
	Payload []byte
	// Datagrams and the bytes of their payloads.
	Datagrams, DatagramBytes int
}

// Notice announces an object that this incarnation received and stored. It returns what became of the notice, or,
// where ctx ended before that was known, ctx's error; the notice is then published all the same, if it can be.
//
// Settled is called exactly once with the outcome: nil when the notice is in the stream (and counted as announced), or
// an error of stream. It is called before Notice returns that outcome, and later where ctx ended. Count Received and
// Unfinished there, so that the ledger's columns agree however long the stream takes.
func (a *Announcer) Notice(ctx context.Context, n wire.Notice, settled func(error)) error {
	return nil
}

// Telemetry queues a message. It waits for room in the queue until ctx ends; an error means that nothing was queued and
// settled will not be called. Otherwise settled is called exactly once with the outcome, from another goroutine, and
// must not block: nil when the message is in the stream (and counted as announced), or an error of stream.
func (a *Announcer) Telemetry(ctx context.Context, m Telemetry, settled func(error)) error {
	return nil
}
