// SPDX-License-Identifier: Apache-2.0

// Package stream connects to NATS and commits messages to JetStream streams, many with one sync.
package stream

import (
	"errors"

	"github.com/substorm/substorm/internal/wire"
)

// Errors of Committer; tell them apart with errors.Is.
var (
	// ErrUnavailable: JetStream cannot be reached or did not answer. The message may or may not be in the stream:
	// publishing it again under the same id is safe.
	ErrUnavailable = errors.New("JetStream is unavailable")
	// ErrFull: the stream, or the account that it belongs to, is at its greatest size. The message is not in the stream.
	ErrFull = errors.New("the stream is full")
	// ErrRefused: the stream does not take this message, now or later. It is not in the stream.
	ErrRefused = errors.New("the stream refuses the message")
	// ErrClosed: the committer takes nothing more.
	ErrClosed = errors.New("the committer is closed")
)

// CauseOf returns the cause under which what an error of Committer kept from the stream is counted.
func CauseOf(err error) wire.Cause {
	switch {
	case errors.Is(err, ErrFull):
		return wire.CauseStreamFull
	case errors.Is(err, ErrClosed):
		return wire.CauseDraining
	default:
		return wire.CauseStreamUnavailable
	}
}
