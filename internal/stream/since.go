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
	next, err := seek(ctx, s, jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &at})
	if err != nil {
		return 0, fmt.Errorf("look for the first message since %s: %w", wire.FormatTime(at), err)
	}
	if next == 0 {
		return after, nil
	}
	return next, nil
}

// LastOf returns the sequence of the newest message on subjects, 0 where a stream
// has none.
func LastOf(ctx context.Context, js jetstream.JetStream, name, subjects string) (uint64, error) {
	s, err := js.Stream(ctx, name)
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", name, err)
	}
	last, err := seek(ctx, s, jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverLastPolicy, FilterSubject: subjects})
	if err != nil {
		return 0, fmt.Errorf("look for the newest message on %s: %w", subjects, err)
	}
	return last, nil
}

// seek returns the sequence of the first message that a consumer would get, 0
// where there is none.
func seek(ctx context.Context, s jetstream.Stream, cfg jetstream.ConsumerConfig) (uint64, error) {
	cfg.AckPolicy, cfg.HeadersOnly, cfg.MemoryStorage, cfg.Replicas = jetstream.AckNonePolicy, true, true, 1
	cfg.InactiveThreshold = seekConsumerIdle
	consumer, err := s.CreateConsumer(ctx, cfg)
	if err != nil {
		return 0, err
	}
	if consumer.CachedInfo().NumPending == 0 {
		return 0, nil
	}
	m, err := consumer.Next(jetstream.FetchMaxWait(seekTimeout))
	if err != nil {
		return 0, err
	}
	meta, err := m.Metadata()
	if err != nil {
		return 0, err
	}
	return meta.Sequence.Stream, nil
}
