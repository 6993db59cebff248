// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"maps"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// status is what is measured of a consumer of mode All. Counts are since this feed
// server began to watch, those of gaps since the consumer was made.
func (w *watch) status(now time.Time) wire.ConsumerStatus {
	s := wire.ConsumerStatus{Incarnation: w.cfg.Incarnation, ReportedAt: now, Gaps: w.cursor.Gaps, LastGap: w.cursor.LastGap}
	if len(w.cursor.Missing) > 0 {
		s.Dropped = map[string]uint64{}
		for reason, count := range maps.All(w.cursor.Missing) {
			s.Dropped[string(reason)] = count
		}
	}
	var lag time.Duration
	isAsked := false
	for _, stream := range w.streams {
		s.Messages += stream.given
		if stream.info == nil {
			continue
		}
		s.Messages += stream.info.AckFloor.Consumer - min(stream.info.AckFloor.Consumer, stream.acknowledged)
		s.LagMessages += int64(stream.info.NumPending) + int64(stream.info.NumAckPending)
		lag = max(lag, stream.waiting.since(now))
		isAsked = isAsked || asked(stream.info, now)
	}
	s.LagMillis = lag.Milliseconds()
	s.Token = w.token().String()
	s.State = w.state.of(now, isAsked, lag, w.cursor.LastGap)
	return s
}

// token is the place up to which the consumer has acknowledged everything.
func (w *watch) token() wire.FeedToken {
	behind := func(stream string) wire.ResumeToken {
		place, ok := w.cursor.Places[stream]
		if stream == "" || !ok {
			return wire.ResumeToken{}
		}
		return wire.ResumeToken{Epoch: place.Epoch, Sequence: place.Next - 1}
	}
	return wire.FeedToken{Notices: behind(w.selection.Notices), Telemetry: behind(w.selection.Telemetry)}
}
