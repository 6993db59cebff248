// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/substorm/substorm/bench/internal/control"
	"github.com/substorm/substorm/bench/internal/lab"
)

// warmup is what is left out before calm is measured: what was installed settles.
const warmup = 75 * time.Second

// settle is for how long the processor time of a Site-wide change is counted: statuses follow.
const settle = 30 * time.Second

// changedAway is how many Instruments change while no operator runs.
const changedAway = 10

// askEvery is how often the operator's metrics are asked for while it starts: they have tens of thousands of series, which cost
// it more time than anything else that it does where they are asked for all the time.
const askEvery = time.Second

// measure runs all phases at one size.
func measure(ctx context.Context, l *lab.Lab, b control.Backends, name string, s control.Size, t times) (m measured, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	site, err := control.NewSite(ctx, l, b, name, s)
	if err != nil {
		return m, err
	}
	op, err := control.StartOperator(l, b.API, name)
	if err != nil {
		return m, err
	}
	defer func() { op.Stop() }()
	if m.installed, err = site.Install(ctx, t.limit); err != nil {
		return m, err
	}
	control.Said("installed: %d of %d Programmed after %v", site.Seen.Programmed(), s.Instruments, m.installed)
	time.Sleep(warmup)
	go func() { _ = op.Profile("profile?seconds=20", name+"-calm") }()
	if m.calm, err = op.Uses(t.phase, func() error { time.Sleep(t.phase); return nil }); err != nil {
		return m, err
	}
	control.Said("calm: %.2f cores, %.1f writes/s", m.calm.Cores, m.calm.Writes)
	if err := change(ctx, site, op, t, &m); err != nil {
		return m, err
	}
	control.Said("changes: p50 %v, p99 %v, %.2f cores, %.1f writes/s", m.p50, m.p99, m.changing.Cores, m.changing.Writes)
	if err := hold(ctx, site, op, t.limit, &m); err != nil {
		return m, err
	}
	control.Said("legalHold: after %v, %v of processor time", m.siteWide, m.siteWideTime)
	if m.peakMiB, err = op.Peak(); err != nil {
		return m, err
	}
	if err := op.Profile("heap", name+"-heap"); err != nil {
		return m, err
	}
	op.Stop()
	if op, err = restart(ctx, site, l, b, op, t.limit, &m); err != nil {
		return m, err
	}
	control.Said("restart: after %v, %v of processor time", m.restarted, m.restartTime)
	peak, err := op.Peak()
	m.peakMiB = max(m.peakMiB, peak)
	return m, err
}

// change patches a tenth of the Instruments in the course of a phase, and sees when each is in the registry.
func change(ctx context.Context, s *control.Site, op *control.Operator, t times, m *measured) error {
	m.changes = int(float64(s.Size.Instruments) / 10 * t.phase.Minutes())
	pace := t.phase / time.Duration(m.changes)
	before, err := s.Writes(ctx)
	if err != nil {
		return err
	}
	m.changing, err = op.Uses(t.phase, func() error {
		begin := time.Now()
		go func() { _ = op.Profile("profile?seconds=20", s.Name+"-changes") }()
		for i := range m.changes {
			time.Sleep(time.Until(begin.Add(time.Duration(i) * pace)))
			if err := s.ChangeOne(ctx, i%s.Size.Instruments, i); err != nil {
				return err
			}
		}
		time.Sleep(time.Until(begin.Add(t.phase)))
		return nil
	})
	if err != nil {
		return err
	}
	after, err := s.Writes(ctx)
	if err != nil {
		return err
	}
	for _, what := range slices.Sorted(maps.Keys(after)) {
		if n := after[what] - before[what]; n >= t.phase.Minutes() {
			control.Said("changes: %.0f writes of %s", n, what)
		}
	}
	control.Within(ctx, t.limit, func() bool { return len(s.Seen.Waits()) == m.changes })
	waits := s.Seen.Waits()
	m.late = m.changes - len(waits)
	for range m.late {
		waits = append(waits, t.limit)
	}
	slices.Sort(waits)
	m.p50, m.p99 = waits[len(waits)/2], waits[len(waits)*99/100]
	seconds := t.phase.Seconds()
	m.writesPerChange = max(0, m.changing.Writes*seconds-5*seconds) / float64(m.changes)
	return nil
}

// hold puts the Site under legal hold, which stands in each entry.
func hold(ctx context.Context, s *control.Site, op *control.Operator, limit time.Duration, m *measured) error {
	before, err := op.Time()
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := s.PatchSite(ctx, `{"spec":{"legalHold":"All"}}`); err != nil {
		return err
	}
	m.siteWide = control.Within(ctx, limit, func() bool { return s.Seen.Held() == s.Size.Instruments })
	control.Said("legalHold: %d of %d entries after %v", s.Seen.Held(), s.Size.Instruments, time.Since(begin))
	time.Sleep(time.Until(begin.Add(settle)))
	after, err := op.Time()
	m.siteWideTime = after - before
	return err
}

// restart starts an operator again after some Instruments have changed without one.
func restart(ctx context.Context, s *control.Site, l *lab.Lab, b control.Backends, before *control.Operator, limit time.Duration, m *measured) (*control.Operator, error) {
	for i := range changedAway {
		if err := s.ChangeOne(ctx, i*s.Size.Instruments/changedAway, s.Size.Instruments+i); err != nil {
			return before, err
		}
	}
	begin := time.Now()
	op, err := control.StartOperator(l, b.API, s.Name)
	if err != nil {
		return before, err
	}
	go func() { _ = op.Profile("profile?seconds=40", s.Name+"-restart") }()
	var last error
	var asked time.Time
	control.Within(ctx, limit, func() bool {
		if s.Seen.Programmed() != s.Size.Instruments || time.Since(asked) < askEvery {
			return false
		}
		var judged int
		asked = time.Now()
		judged, last = op.Judged()
		return last == nil && judged == s.Size.Instruments
	})
	m.restarted = time.Since(begin)
	if last != nil {
		return op, last
	}
	m.restartTime, err = op.Time()
	return op, err
}
