// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// waitingInterval is how often is looked for the first message that waits: that
	// takes a consumer of its own.
	waitingInterval = 5 * time.Second
	waitingTimeout  = 2 * time.Second
	// waitingIdle is when the server forgets that consumer if we do not delete it.
	waitingIdle = 10 * time.Second
)

// waiting is the first message that a durable's consumer has not acknowledged, as it
// was found last.
type waiting struct {
	sequence uint64
	// at is when the stream took it.
	at     time.Time
	looked time.Time
}

// first returns the first message that waits behind an acknowledged one, as far as
// it is known: 0 where it is not.
func (w *waiting) first(ctx context.Context, js jetstream.JetStream, stream string, info *jetstream.ConsumerInfo, from uint64) uint64 {
	if outstanding(info) == 0 {
		w.sequence, w.at = 0, time.Time{}
		return 0
	}
	if w.sequence >= from {
		return w.sequence
	}
	if time.Since(w.looked) < waitingInterval {
		return 0 // it was another one a moment ago: things move
	}
	w.sequence, w.at, w.looked = 0, time.Time{}, time.Now()
	ctx, cancel := context.WithTimeout(ctx, waitingTimeout)
	defer cancel()
	m, err := firstMessage(ctx, js, stream, selected(info), from)
	if err != nil || m == nil {
		return 0 // it is a figure, and the next look comes
	}
	w.sequence, w.at = m.Sequence.Stream, m.Timestamp
	return w.sequence
}
