// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"time"

	"github.com/substorm/substorm/internal/stamp"
	"github.com/substorm/substorm/internal/wire"
)

// newLinkProbe returns what measures the link to a gateway. Its packets count as bytes of
// the day.
func (s *keeper) newLinkProbe() *stamp.Session {
	return stamp.NewSession(stamp.SessionConfig{
		Address: s.cfg.Queue.LinkProbe, From: s.cfg.From, Interval: s.cfg.Queue.LinkProbeInterval,
		May: func(bytes int) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			if !s.schedule.budget.admitsBeat(time.Now()) {
				return false
			}
			s.schedule.budget.spent += int64(bytes)
			return true
		},
		Trouble: func(err error) {
			if err != nil {
				s.troubles.say("link", err.Error())
			}
		},
	})
}

// linkProbeNow is what is known of the link, nil where nothing was measured yet.
func (s *keeper) linkProbeNow(now time.Time) *wire.LinkProbe {
	if s.linkProbe == nil {
		return nil
	}
	r := s.linkProbe.Report(now)
	if r.Sent == 0 {
		return nil
	}
	p := &wire.LinkProbe{To: s.cfg.Queue.LinkProbe, Window: wire.Span(r.Window.Round(time.Second)),
		Sent: int64(r.Sent), Answered: int64(r.Answered), LostOut: int64(r.LostOut), LostBack: int64(r.LostBack)}
	if r.Answered > 0 {
		p.Delay = &wire.LinkDelay{Min: micros(r.Min), Mean: micros(r.Mean), P99: micros(r.P99), Max: micros(r.Max),
			JitterOut: micros(r.JitterOut), JitterBack: micros(r.JitterBack)}
	}
	return p
}

// micros rounds to what is measured: clocks are not read faster.
func micros(d time.Duration) wire.Span { return wire.Span(d.Round(time.Microsecond)) }
