// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/substorm/substorm/bench/internal/lab"
)

// warmup is what is left out before calm is measured: what was installed settles.
const warmup = 75 * time.Second

// settle is for how long the processor time of a Site-wide change is counted: statuses follow.
const settle = 30 * time.Second

// changedAway is how many Instruments change while no operator runs.
const changedAway = 10

// measure runs all phases at one size.
func measure(ctx context.Context, l *lab.Lab, b backends, name string, s size, t times) (m measured, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	site, err := newSite(ctx, l, b, name, s)
	if err != nil {
		return m, err
	}
	op, err := startOperator(l, b.api, name)
	if err != nil {
		return m, err
	}
	defer func() { op.stop() }()
	if m.installed, err = site.install(ctx, t.limit); err != nil {
		return m, err
	}
	said("installed: %d of %d Programmed after %v", site.seen.programmed(), s.instruments, m.installed)
	time.Sleep(warmup)
	go func() { _ = op.profile("profile?seconds=20", name+"-calm") }()
	if m.calm, err = op.uses(t.phase, func() error { time.Sleep(t.phase); return nil }); err != nil {
		return m, err
	}
	said("calm: %.2f cores, %.1f writes/s", m.calm.cores, m.calm.writes)
	if err := site.change(ctx, op, t, &m); err != nil {
		return m, err
	}
	said("changes: p50 %v, p99 %v, %.2f cores, %.1f writes/s", m.p50, m.p99, m.changing.cores, m.changing.writes)
	if err := site.hold(ctx, op, t.limit, &m); err != nil {
		return m, err
	}
	said("legalHold: after %v, %v of processor time", m.siteWide, m.siteWideTime)
	if m.peakMiB, err = op.peak(); err != nil {
		return m, err
	}
	if err := op.profile("heap", name+"-heap"); err != nil {
		return m, err
	}
	op.stop()
	if op, err = site.restart(ctx, l, b, op, t.limit, &m); err != nil {
		return m, err
	}
	said("restart: after %v, %v of processor time", m.restarted, m.restartTime)
	peak, err := op.peak()
	m.peakMiB = max(m.peakMiB, peak)
	return m, err
}

// change patches a tenth of the Instruments in the course of a phase, and sees when each is in the registry.
func (s *site) change(ctx context.Context, op *operatorProcess, t times, m *measured) error {
	m.changes = int(float64(s.size.instruments) / 10 * t.phase.Minutes())
	pace := t.phase / time.Duration(m.changes)
	before, err := s.writes(ctx)
	if err != nil {
		return err
	}
	m.changing, err = op.uses(t.phase, func() error {
		begin := time.Now()
		go func() { _ = op.profile("profile?seconds=20", s.name+"-changes") }()
		for i := range m.changes {
			time.Sleep(time.Until(begin.Add(time.Duration(i) * pace)))
			if err := s.changeOne(ctx, i%s.size.instruments, i); err != nil {
				return err
			}
		}
		time.Sleep(time.Until(begin.Add(t.phase)))
		return nil
	})
	if err != nil {
		return err
	}
	after, err := s.writes(ctx)
	if err != nil {
		return err
	}
	for _, what := range slices.Sorted(maps.Keys(after)) {
		if n := after[what] - before[what]; n >= t.phase.Minutes() {
			said("changes: %.0f writes of %s", n, what)
		}
	}
	within(ctx, t.limit, func() bool { return len(s.seen.waits()) == m.changes })
	waits := s.seen.waits()
	m.late = m.changes - len(waits)
	for range m.late {
		waits = append(waits, t.limit)
	}
	slices.Sort(waits)
	m.p50, m.p99 = waits[len(waits)/2], waits[len(waits)*99/100]
	seconds := t.phase.Seconds()
	m.writesPerChange = max(0, m.changing.writes*seconds-5*seconds) / float64(m.changes)
	return nil
}

// hold puts the Site under legal hold, which stands in each entry.
func (s *site) hold(ctx context.Context, op *operatorProcess, limit time.Duration, m *measured) error {
	before, err := op.time()
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := s.patchSite(ctx, `{"spec":{"legalHold":"All"}}`); err != nil {
		return err
	}
	m.siteWide = within(ctx, limit, func() bool { return s.seen.held() == s.size.instruments })
	said("legalHold: %d of %d entries after %v", s.seen.held(), s.size.instruments, time.Since(begin))
	time.Sleep(time.Until(begin.Add(settle)))
	after, err := op.time()
	m.siteWideTime = after - before
	return err
}

// restart starts an operator again after some Instruments have changed without one.
func (s *site) restart(ctx context.Context, l *lab.Lab, b backends, before *operatorProcess, limit time.Duration, m *measured) (*operatorProcess, error) {
	for i := range changedAway {
		if err := s.changeOne(ctx, i*s.size.instruments/changedAway, s.size.instruments+i); err != nil {
			return before, err
		}
	}
	begin := time.Now()
	op, err := startOperator(l, b.api, s.name)
	if err != nil {
		return before, err
	}
	var last error
	within(ctx, limit, func() bool {
		var judged int
		judged, last = op.judged()
		return last == nil && judged == s.size.instruments && s.seen.programmed() == s.size.instruments
	})
	m.restarted = time.Since(begin)
	if last != nil {
		return op, last
	}
	m.restartTime, err = op.time()
	return op, err
}

// within waits until something is so, for at most so long, and returns for how long it waited.
func within(ctx context.Context, limit time.Duration, is func() bool) time.Duration {
	begin := time.Now()
	for time.Since(begin) < limit && ctx.Err() == nil && !is() {
		time.Sleep(50 * time.Millisecond)
	}
	return time.Since(begin)
}

func said(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
