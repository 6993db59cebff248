// SPDX-License-Identifier: Apache-2.0

// Package announce publishes what a gateway received: notices of stored objects and telemetry messages, as CloudEvents
// on the Site's two base streams.
package announce

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// Config says which gateway announces, and where.
type Config struct {
	Site, Gateway, Incarnation string
	// Notices commits to wire.NoticeStream, Observations to wire.ObservationStream.
	Notices, Observations *stream.Committer
}

// Announcer publishes for one incarnation of a gateway. Its methods may be called from any number of goroutines.
type Announcer struct {
	cfg    Config
	source string
	// messages is how many telemetry messages were published.
	messages atomic.Uint64
}

// New returns an Announcer.
func New(cfg Config) *Announcer {
	return &Announcer{cfg: cfg, source: wire.EventSource(cfg.Site, cfg.Gateway)}
}

// Notice publishes the notice of an object that is stored, which this incarnation or an earlier one received. It returns
// what became of it (an error of stream, see stream.CauseOf), or stream.ErrUnavailable where ctx ended before that was
// known; the notice is then published all the same, if it can be.
//
// Settled is called exactly once with the outcome: nil when the notice is in the stream. It is called before Notice
// returns that outcome, and later, from another goroutine that it must not hold up, where ctx ended.
func (a *Announcer) Notice(ctx context.Context, n wire.Notice, settled func(error)) error {
	msg, err := stream.NoticeMessage(n, a.cfg.Gateway)
	if err != nil {
		err = fmt.Errorf("notice of %s: %w: %w", n.Key, stream.ErrRefused, err)
		settled(err)
		return err
	}
	outcome := make(chan error, 1)
	err = a.cfg.Notices.Submit(ctx, msg, func(_ stream.Ack, err error) {
		settled(err)
		outcome <- err
	})
	if err != nil {
		settled(err)
		return err
	}
	select {
	case err := <-outcome:
		return err
	case <-ctx.Done():
		return fmt.Errorf("notice of %s: %w: %w", n.Key, stream.ErrUnavailable, ctx.Err())
	}
}

// Telemetry is a message of one instrument and channel: datagrams of one UTC day.
type Telemetry struct {
	Instrument, Channel string
	// At is the receive time of the first datagram.
	At time.Time
	// Payload is as wire.AppendTelemetryHeader and AppendDatagram made it. It must not change until the message is settled.
	Payload []byte
	// Datagrams, and the bytes of their payloads.
	Datagrams, DatagramBytes int
}

// Telemetry queues a message. It waits for space in the queue until ctx ends; an error means that nothing was queued and
// settled will not be called. Otherwise settled is called exactly once with the outcome, from another goroutine that it
// must not hold up: nil when the message is in the stream, or an error of stream. After
// stream.ErrFull the same message may be given again.
func (a *Announcer) Telemetry(ctx context.Context, m Telemetry, settled func(error)) error {
	id := wire.PublicationID(a.cfg.Gateway, a.cfg.Incarnation, a.messages.Add(1))
	msg := &nats.Msg{Subject: wire.ObservationSubject(a.cfg.Site, m.Instrument, m.Channel), Data: m.Payload}
	msg.Header = nats.Header{
		wire.HeaderMessageID:     {id},
		wire.HeaderID:            {id},
		wire.HeaderSpecVersion:   {wire.SpecVersion},
		wire.HeaderType:          {wire.TypeTelemetry},
		wire.HeaderSource:        {a.source},
		wire.HeaderSubject:       {m.Instrument},
		wire.HeaderTime:          {wire.FormatTime(m.At)},
		wire.HeaderContentType:   {wire.ContentTypeProtobuf},
		wire.HeaderFormat:        {strconv.Itoa(wire.Format)},
		wire.HeaderDatagrams:     {strconv.Itoa(m.Datagrams)},
		wire.HeaderDatagramBytes: {strconv.Itoa(m.DatagramBytes)},
	}
	return a.cfg.Observations.Submit(ctx, msg, func(_ stream.Ack, err error) { settled(err) })
}
