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

// MaxClockDifference is how far our clock and the NATS server's may differ for actions by the clock that cannot be undone.
const MaxClockDifference = 5 * time.Minute

// ErrClock: two clocks do not agree, and it cannot be determined which of them is right.
var ErrClock = errors.New("the clocks do not agree")

// AgreeWithServer returns ErrClock if a time that our clock gave just now differs too much from the time of the NATS server, which is
// requested through a stream. Errors: ErrClock, and errors that keep JetStream from answering.
func AgreeWithServer(ctx context.Context, js jetstream.JetStream, name string, ours time.Time) error {
	server, err := ServerTime(ctx, js, name)
	if err != nil {
		return fmt.Errorf("ask the NATS server for its time: %w", err)
	}
	return Agree(ours, server)
}

// ServerAgrees returns a function that compares a time that our clock gave just now with the time of the NATS server, as AgreeWithServer
// does, through a key-value bucket.
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
