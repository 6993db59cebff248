// SPDX-License-Identifier: Apache-2.0

// Package fanout is what benchmarks of feed-server have in common: a Site with a
// Feed and consumers, and the telemetry that a gateway would publish.
package fanout

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/bench/internal/crowd"
	"github.com/substorm/substorm/internal/wire"
)

// Supply publishes samples as a gateway does: those of BatchInterval in one
// telemetry message.
type Supply struct {
	mu         sync.Mutex
	js         jetstream.JetStream
	site       string
	instrument string
	channel    string
	// source tells its messages from those of other Supplies of the channel, which
	// JetStream would take for the same.
	source string
	// number of the last sample, and sent messages.
	number, sent uint64
}

// BatchInterval is how long a gateway gathers datagrams for a message.
const BatchInterval = 100 * time.Millisecond

// maxBatch is how large a gateway lets a message become, in bytes.
const maxBatch = 256 << 10

// Number of the last sample that was published.
func (s *Supply) Number() uint64 { return s.number }

// Publish publishes one message with so many samples of a size, and waits until
// JetStream has it.
func (s *Supply) Publish(ctx context.Context, samples, size int) error {
	s.mu.Lock() // samples are published in the order of their numbers
	defer s.mu.Unlock()
	m := s.message(samples, size)
	if _, err := s.js.PublishMsg(ctx, m); err != nil {
		return fmt.Errorf("publish sample %d: %w", s.number, err)
	}
	return nil
}

// Flood publishes more than what kernels hold for a consumer that does not read: one MiB.
// A stalled consumer has stalled then, and one with a thin link is behind for more than
// half a minute.
func (s *Supply) Flood(ctx context.Context) error {
	const size, samples = 32 << 10, 32
	for range samples {
		if err := s.Publish(ctx, 1, size); err != nil {
			return err
		}
	}
	return nil
}

// Every publishes a sample of a size at an interval, for a time. Several may run at
// once.
func (s *Supply) Every(ctx context.Context, interval time.Duration, size int, during time.Duration) error {
	begin := time.Now()
	for n := range int(during / interval) {
		if err := sleepUntil(ctx, begin.Add(time.Duration(n)*interval)); err != nil {
			return err
		}
		if err := s.Publish(ctx, 1, size); err != nil {
			return err
		}
	}
	return sleepUntil(ctx, begin.Add(during))
}

// PublishFrom publishes so many messages of one sample each, numbered from first
// on, without waiting for each, and returns once JetStream has all.
func (s *Supply) PublishFrom(ctx context.Context, first uint64, messages, size int) error {
	s.number = first - 1
	acks := make([]jetstream.PubAckFuture, messages)
	for i := range acks {
		var err error
		if acks[i], err = s.js.PublishMsgAsync(s.message(1, size)); err != nil {
			return fmt.Errorf("publish sample %d: %w", s.number, err)
		}
	}
	for _, a := range acks {
		select {
		case <-a.Ok():
		case err := <-a.Err():
			return fmt.Errorf("publish: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// message is a telemetry message as a gateway publishes it.
func (s *Supply) message(samples, size int) *nats.Msg {
	source := netip.MustParseAddrPort("127.0.0.1:4000")
	b := wire.AppendTelemetryHeader(make([]byte, 0, samples*(size+wire.MaxDatagramOverhead)+256), s.instrument, s.channel)
	payload := make([]byte, size)
	now := time.Now()
	for range samples {
		s.number++
		crowd.Sample(payload, s.number, now)
		b = wire.AppendDatagram(b, wire.Datagram{ReceivedAt: now, Source: source, DestinationPort: 4000, Payload: payload})
	}
	s.sent++
	id := s.source + "/" + s.channel + "/" + strconv.FormatUint(s.sent, 10)
	return &nats.Msg{Subject: wire.ObservationSubject(s.site, s.instrument, s.channel), Data: b, Header: nats.Header{
		wire.HeaderMessageID: {id}, wire.HeaderID: {id}, wire.HeaderSpecVersion: {wire.SpecVersion}, wire.HeaderType: {wire.TypeTelemetry},
		wire.HeaderSource: {wire.EventSource(s.site, "bench")}, wire.HeaderTime: {wire.FormatTime(now)}, wire.HeaderFormat: {strconv.Itoa(wire.Format)},
	}}
}

// Rate publishes so many samples of a size a second, for a time. Error: where the
// machine cannot keep the rate up.
func (s *Supply) Rate(ctx context.Context, perSecond, size int, during time.Duration) error {
	interval := max(BatchInterval, time.Second/time.Duration(perSecond))
	samples := max(1, int(int64(perSecond)*int64(interval)/int64(time.Second)))
	if samples*size > maxBatch {
		return fmt.Errorf("%d samples of %d bytes do not fit into a message", samples, size)
	}
	begin := time.Now()
	for n := range int(during / interval) {
		if err := sleepUntil(ctx, begin.Add(time.Duration(n)*interval)); err != nil {
			return err
		}
		if err := s.Publish(ctx, samples, size); err != nil {
			return err
		}
	}
	return sleepUntil(ctx, begin.Add(during))
}

func sleepUntil(ctx context.Context, at time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(at)):
		return nil
	}
}
