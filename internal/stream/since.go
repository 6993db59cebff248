// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

const (
	seekTimeout = 5 * time.Second
	// seekConsumerIdle is when the server forgets the consumer that found a time.
	seekConsumerIdle = 10 * time.Second
)

// FirstSince returns the sequence of the first message that a stream took at or
// after an instant, or the one after its last.
func FirstSince(ctx context.Context, js jetstream.JetStream, name string, at time.Time) (uint64, error) {
	s, err := js.Stream(ctx, name)
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", name, err)
	}
	after := s.CachedInfo().State.LastSeq + 1 // as it was before the look: what comes later is younger
	consumer, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &at, AckPolicy: jetstream.AckNonePolicy,
		HeadersOnly: true, MemoryStorage: true, Replicas: 1, InactiveThreshold: seekConsumerIdle,
	})
	if err != nil {
		return 0, fmt.Errorf("look for the first message since %s: %w", wire.FormatTime(at), err)
	}
	if consumer.CachedInfo().NumPending == 0 {
		return after, nil
	}
	m, err := consumer.Next(jetstream.FetchMaxWait(seekTimeout))
	if err != nil {
		return 0, fmt.Errorf("look for the first message since %s: %w", wire.FormatTime(at), err)
	}
	meta, err := m.Metadata()
	if err != nil {
		return 0, err
	}
	return meta.Sequence.Stream, nil
}
