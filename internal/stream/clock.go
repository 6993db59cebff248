// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// MaxClockDifference is how far our clock and that of the NATS server may be apart where
// what is done by the clock cannot be undone.
const MaxClockDifference = 5 * time.Minute

// ErrClock: two clocks do not agree, and nobody can say which of them is right.
var ErrClock = errors.New("the clocks do not agree")

// AgreeWithServer returns ErrClock where a time that our clock gave just now is not about
// that of the NATS server, which is asked by way of a stream. Errors: ErrClock, and what
// keeps JetStream from answering.
func AgreeWithServer(ctx context.Context, js jetstream.JetStream, name string, ours time.Time) error {
	server, err := ServerTime(ctx, js, name)
	if err != nil {
		return fmt.Errorf("ask the NATS server for its time: %w", err)
	}
	return Agree(ours, server)
}

// ServerAgrees returns a function that compares a time which our clock gave just now with
// that of the NATS server, as AgreeWithServer does, by way of a key-value bucket.
func ServerAgrees(js jetstream.JetStream, bucket string) func(context.Context, time.Time) error {
	return func(ctx context.Context, ours time.Time) error { return AgreeWithServer(ctx, js, "KV_"+bucket, ours) }
}

// ServerTime returns the time of the NATS server, by a fresh answer about a stream. Errors:
// what keeps JetStream from answering.
func ServerTime(ctx context.Context, js jetstream.JetStream, name string) (time.Time, error) {
	s, err := js.Stream(ctx, name)
	if err != nil {
		return time.Time{}, fmt.Errorf("stream %s: %w", name, err)
	}
	at := s.CachedInfo().TimeStamp
	if at.IsZero() {
		return time.Time{}, fmt.Errorf("stream %s: the NATS server does not report its time: version 2.10 or later does", name)
	}
	return at.UTC(), nil
}

// Agree returns ErrClock where our clock and another one differ by more than
// MaxClockDifference.
func Agree(ours, server time.Time) error {
	if ours.Sub(server).Abs() <= MaxClockDifference {
		return nil
	}
	return fmt.Errorf("%w: this gateway's says %s, the NATS server's %s: correct the one that is wrong (NTP)", ErrClock,
		wire.FormatTime(ours.Truncate(time.Second)), wire.FormatTime(server.Truncate(time.Second)))
}
