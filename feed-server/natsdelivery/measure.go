// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// The thresholds of a consumer's state; FeedConsumer's documentation has them.
const (
	lappedFor = 10 * time.Minute
	slowFrom  = 5 * time.Second
	slowFor   = 10 * time.Second
)

// measure is what a consumer's state needs to know of the past.
type measure struct{ behindSince time.Time }

// of returns the state of a consumer: whether it asks for messages, how long the
// first message that it was not given has waited, and when it was told of a gap.
func (m *measure) of(now time.Time, asks bool, waited time.Duration, lastGap *time.Time) string {
	switch {
	case waited <= slowFrom:
		m.behindSince = time.Time{}
	case m.behindSince.IsZero():
		m.behindSince = now
	}
	switch {
	case !asks:
		return wire.StateIdle
	case lastGap != nil && now.Sub(*lastGap) < lappedFor:
		return wire.StateLapped
	case !m.behindSince.IsZero() && now.Sub(m.behindSince) >= slowFor:
		return wire.StateSlow
	default:
		return wire.StateFlowing
	}
}
