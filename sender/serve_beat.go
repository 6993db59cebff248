// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/substorm/substorm/internal/build"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/wire"
)

// beatGap is the least time between heartbeats.
const beatGap = time.Second

// beats sends a heartbeat at once and then every so often. A sender that takes commands also sends
// one when the state of commands changed, and when a connection was made or has ended: gateways
// command over connections on which it announced itself, and only while they stand. On a link that
// breaks all the time these heartbeats become rarer.
func (s *keeper) beats(ctx context.Context) {
	for gap := beatGap; ctx.Err() == nil; {
		again := s.beat(ctx) != nil && s.sampler != nil
		next := time.Now().Add(gap)
		wait := s.cfg.Queue.Heartbeat - rand.N(s.cfg.Queue.Heartbeat/10+1)
		if again {
			wait, gap = min(wait, gap), 2*gap
		}
		due := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-due.C:
			if !again {
				gap = beatGap
			}
		case <-s.obeyed:
		case <-s.reconnected:
			retry.Sleep(ctx, min(time.Until(next), s.cfg.Queue.Heartbeat))
			gap = 2 * gap
		}
		due.Stop()
		gap = min(gap, max(beatGap, s.cfg.Queue.Heartbeat))
	}
}

// beat sends a heartbeat.
func (s *keeper) beat(ctx context.Context) error {
	s.mu.Lock()
	may := s.schedule.budget.admitsBeat(time.Now())
	s.mu.Unlock()
	address, ok := s.delivery.roster.pick(nil)
	if !may || !ok {
		return nil
	}
	err := s.pipes.beat(ctx, address, s.heartbeat, s.heard)
	if err != nil && ctx.Err() == nil {
		s.troubles.say("heartbeat", "heartbeat: "+err.Error())
	}
	if err == nil { // it went over every connection that there is
		select {
		case <-s.reconnected:
		default:
		}
	}
	return err
}

// signal wakes the current or the next waiter.
func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
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
	if s.sampler != nil {
		h.Commands, h.Sampling = []string{wire.CommandSampling}, s.sampler.report(now)
	}
	h.LinkProbe = s.linkProbeNow(now)
	return h.Frame()
}

func (s *keeper) heard(answer wire.HeartbeatAnswer, sent, heard time.Time) {
	offset, roundTrip := answer.Offset(sent, heard)
	s.clock.add(offset, roundTrip)
}
