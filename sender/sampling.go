// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/sampling"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/sender/queue"
)

// sampler does what gateways command of the instrument: it runs a command of the user's for each
// channel whose sampling changes, and reports the result. The last command received counts; a
// command that is replaced before its turn is never run.
type sampler struct {
	// run sets how often the instrument observes a channel.
	run func(ctx context.Context, c wire.ChannelSampling) error
	// obeyed is called when the report changes.
	obeyed func()
	log    *slog.Logger

	mu sync.Mutex
	// asked is the last command, does the last one that was obeyed as a whole; nil
	// before the first.
	asked, does []wire.ChannelSampling
	problem     string
	seen        meter
	// wake signals that there is a command.
	wake chan struct{}
}

func newSampler(run func(context.Context, wire.ChannelSampling) error, obeyed func(), log *slog.Logger) *sampler {
	return &sampler{run: run, obeyed: obeyed, log: log, wake: make(chan struct{}, 1)}
}

// command takes a line of a gateway's. It does not wait. Commands of other types,
// and of newer formats, are not for us.
func (s *sampler) command(line string) {
	asked, err := wire.ParseSampling(line)
	if err != nil {
		s.log.Warn("cannot parse a gateway's command", "error", err)
		return
	}
	s.mu.Lock()
	s.asked = asked.Channels
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// obey runs commands as they come, until ctx ends. One that fails is tried again.
func (s *sampler) obey(ctx context.Context) {
	pause := time.Duration(0)
	for {
		var again <-chan time.Time
		if pause > 0 {
			again = time.After(pause)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-again:
		}
		if s.try(ctx) {
			pause = 0
		} else {
			pause = min(max(2*pause, time.Second), time.Minute)
		}
	}
}

// try does what is asked and not done yet, and says whether it could.
func (s *sampler) try(ctx context.Context) bool {
	s.mu.Lock()
	asked, does := s.asked, s.does
	s.mu.Unlock()
	if does != nil && slices.Equal(asked, does) {
		return true
	}
	for _, c := range changes(does, asked) {
		if err := s.run(ctx, c); err != nil {
			if ctx.Err() == nil {
				s.log.Error("cannot apply the requested sampling", "channel", c.Channel, "state", c.State, "interval", c.Interval(), "error", err)
				s.set(does, err.Error())
			}
			return false
		}
		s.log.Info("applied the requested sampling", "channel", c.Channel, "state", c.State, "interval", c.Interval())
	}
	s.set(asked, "")
	return true
}

func (s *sampler) set(does []wire.ChannelSampling, problem string) {
	problem = strings.ToValidUTF8(problem[:min(len(problem), wire.MaxProblem-len("�"))], "")
	s.mu.Lock()
	if !slices.Equal(s.does, does) {
		s.seen = meter{}
	}
	changed := !slices.Equal(s.does, does) || s.problem != problem
	s.does, s.problem = does, problem
	s.mu.Unlock()
	if changed {
		s.obeyed()
	}
}

// changes are the channels whose sampling changes: first the entry for all channels that are not
// named, then named channels, then channels that were named before and follow the others again.
func changes(previous, current []wire.ChannelSampling) []wire.ChannelSampling {
	var all []wire.ChannelSampling
	names := map[string]bool{}
	for _, c := range slices.Concat(current, previous) {
		if names[c.Channel] {
			continue
		}
		names[c.Channel] = true
		next := sampling.Of(current, c.Channel)
		next.Channel, next.By = c.Channel, ""
		if previous != nil {
			before := sampling.Of(previous, c.Channel)
			if before.Channel, before.By = c.Channel, ""; before == next {
				continue
			}
		}
		all = append(all, next)
	}
	return all
}

// observed notes new observations.
func (s *sampler) observed(entries []queue.Entry) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range slices.SortedFunc(slices.Values(entries), func(a, b queue.Entry) int { return a.Time().Compare(b.Time()) }) {
		s.seen.add(e.Time())
	}
}

// report is what heartbeats say.
func (s *sampler) report(now time.Time) *wire.SamplingReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &wire.SamplingReport{Obeys: s.does, Problem: s.problem}
	if interval, ok := s.seen.interval(now); ok {
		r.Achieved = []wire.AchievedSampling{{Interval: wire.Span(interval.Round(time.Millisecond))}}
	}
	return r
}

// meter measures how often something is observed.
type meter struct {
	// last times, in order.
	last []time.Time
}

// meterTimes is how many observations the mean is of, and one.
const meterTimes = 17

func (m *meter) add(t time.Time) {
	if n := len(m.last); n > 0 && !t.After(m.last[n-1]) {
		return // backfill
	}
	if len(m.last) == meterTimes {
		m.last = slices.Delete(m.last, 0, 1)
	}
	m.last = append(m.last, t)
}

// interval is the mean between the last observations or, if it is more than three times as long,
// the time since the last one.
func (m *meter) interval(now time.Time) (time.Duration, bool) {
	n := len(m.last)
	if n < 2 {
		return 0, false
	}
	mean := m.last[n-1].Sub(m.last[0]) / time.Duration(n-1)
	if since := now.Sub(m.last[n-1]); since > 3*mean {
		return since, true
	}
	return mean, true
}
