// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/substorm/substorm/internal/build"
	"github.com/substorm/substorm/internal/wire"
)

// beats sends a heartbeat at once and then every so often.
func (s *keeper) beats(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		may := s.schedule.budget.beats(time.Now())
		s.mu.Unlock()
		if address, ok := s.delivery.roster.pick(nil); may && ok {
			if err := s.pipes.beat(ctx, address, s.heartbeat, s.heard); err != nil && ctx.Err() == nil {
				s.troubles.say("heartbeat", "heartbeat: "+err.Error())
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(s.cfg.Queue.Heartbeat - rand.N(s.cfg.Queue.Heartbeat/10+1)):
		}
	}
}

// heartbeat is what we say of ourselves.
func (s *keeper) heartbeat(now time.Time) ([]byte, error) {
	h := wire.Heartbeat{Sender: s.queue.ID(), SentAt: now.UTC(), Version: build.Version()}
	if offset, roundTrip, ok := s.clock.estimate(); ok {
		h.ClockOffset, h.RoundTrip = (*wire.Span)(&offset), (*wire.Span)(&roundTrip)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest time.Time
	h.QueueObjects, h.QueueBytes, oldest = s.schedule.owed()
	if !oldest.IsZero() {
		oldest = oldest.UTC()
		h.Oldest = &oldest
	}
	h.Sent, h.SetAside = s.sent, s.setAside
	return h.Frame()
}

func (s *keeper) heard(answer wire.HeartbeatAnswer, sent, heard time.Time) {
	offset, roundTrip := answer.Offset(sent, heard)
	s.clock.add(offset, roundTrip)
}
