// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/feed-server/hub"
	"github.com/substorm/substorm/feed-server/state"
	"github.com/substorm/substorm/internal/wire"
)

// idleAfter is how long after it last asked for messages a consumer is Idle.
const idleAfter = time.Minute

// isAsking reports whether a consumer asks for messages, or did so lately.
func isAsking(info *jetstream.ConsumerInfo, now time.Time) bool {
	recent := func(at *time.Time) bool { return at != nil && now.Sub(*at) < idleAfter }
	return info.NumWaiting > 0 || recent(info.Delivered.Last) || recent(info.AckFloor.Last)
}

// outstanding is how many messages wait for delivery or acknowledgement.
func outstanding(info *jetstream.ConsumerInfo) uint64 {
	return info.NumPending + uint64(info.NumAckPending)
}

// lagOf is a durable's lag: JetStream counts the messages of a durable, not their
// bytes.
func lagOf(info *jetstream.ConsumerInfo, since time.Time) hub.Lag {
	waiting := outstanding(info)
	return hub.Lag{Messages: waiting, Unsized: waiting > 0, Since: since}
}

// measure records how the consumer does, for its report.
func (w *watch) measure(now time.Time) {
	d := state.Delivered{Place: w.place(), Unsized: true}
	if w.cursor.LastGap != nil {
		d.LastGap = *w.cursor.LastGap
	}
	for _, s := range w.streams {
		d.Messages += s.total()
		if s.info == nil {
			continue
		}
		d.Lag = d.Lag.Plus(lagOf(s.info, s.waiting.at))
		d.Asks = d.Asks || isAsking(s.info, now)
	}
	w.measured.Store(&d)
}

// place is the place up to which the consumer has acknowledged everything.
func (w *watch) place() wire.FeedToken {
	behind := func(stream string) wire.ResumeToken {
		place, ok := w.cursor.Places[stream]
		if stream == "" || !ok {
			return wire.ResumeToken{}
		}
		return wire.ResumeToken{Epoch: place.Epoch, Sequence: place.Next - 1}
	}
	return wire.FeedToken{Notices: behind(w.selection.Notices), Telemetry: behind(w.selection.Telemetry)}
}
