// SPDX-License-Identifier: Apache-2.0

package gaps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// station is one pass over the instruments of a station. The gaps of one are evidence for the cause of another's, so a day is planned
// for all of them before any cause is given: else the cause would depend on the order.
type station struct {
	keeper       *Keeper
	now, settled time.Time
	members      []*member
}

// member is an instrument in a pass.
type member struct {
	entry *wire.InstrumentEntry
	*instrument
	// due are the days to look at.
	due []wire.Day
	// input and plan are of the day that is looked at, nil if it is not looked at.
	input *Input
	plan  *wire.DayGaps
	err   error
}

// byStation returns the instruments of each station, and each that has no station alone, in the order of the registry.
func byStation(all []wire.InstrumentEntry) [][]*wire.InstrumentEntry {
	var groups [][]*wire.InstrumentEntry
	at := map[string]int{}
	for i := range all {
		e := &all[i]
		if n, known := at[e.Station]; known && e.Station != "" {
			groups[n] = append(groups[n], e)
			continue
		}
		at[e.Station] = len(groups)
		groups = append(groups, []*wire.InstrumentEntry{e})
	}
	return groups
}

// compareDays looks at those days of the instruments that may have changed. An instrument that fails keeps none of the others from it: the
// first error is returned, and that instrument begins again with the next pass.
func (s *station) compareDays(ctx context.Context) error {
	var days []wire.Day
	for _, m := range s.members {
		s.try(ctx, m, s.find)
		days = append(days, m.due...)
	}
	slices.Sort(days)
	for _, day := range slices.Compact(days) {
		for _, m := range s.members {
			m.input, m.plan = nil, nil
			if slices.Contains(m.due, day) {
				s.try(ctx, m, func(ctx context.Context, m *member) error { return s.compare(ctx, m, day) })
			}
		}
		for _, m := range s.members {
			if m.plan != nil {
				s.try(ctx, m, func(ctx context.Context, m *member) error { return s.record(ctx, m, day) })
			}
		}
	}
	var first error
	for _, m := range s.members {
		switch {
		case m.err == nil:
			m.forget(s.now)
			continue
		case ctx.Err() != nil || errors.Is(m.err, stream.ErrLeaseLost):
			return m.err
		case first == nil:
			first = fmt.Errorf("instrument %s: %w", m.entry.Instrument, m.err)
		}
		s.keeper.cfg.Metrics.failures.Inc()
		delete(s.keeper.instruments, m.entry.Instrument)
	}
	return first
}

// try does a step for an instrument unless an earlier step for it failed.
func (s *station) try(ctx context.Context, m *member, step func(context.Context, *member) error) {
	if m.err != nil {
		return
	}
	if m.err = step(ctx, m); m.err != nil {
		m.due, m.plan = nil, nil
	}
}

// find says which days of an instrument are due.
func (s *station) find(ctx context.Context, m *member) error {
	k, name := s.keeper, m.entry.Instrument
	if m.instrument = k.instruments[name]; m.instrument == nil {
		var err error
		if m.instrument, err = k.begin(ctx, name, s.now); err != nil {
			return err
		}
		k.instruments[name] = m.instrument
	}
	changed, err := k.findChanged(ctx, m.instrument, s.now)
	if err != nil {
		return err
	}
	m.due = m.instrument.due(changed, s.now)
	return nil
}

// compare plans a day without the causes of its gaps.
func (s *station) compare(ctx context.Context, m *member, day wire.Day) error {
	in := Input{Now: s.now, Settled: s.settled, Day: day, Entry: m.entry, Since: m.since}
	var err error
	if in.Was, err = s.keeper.readGaps(ctx, m.entry.Instrument, day); err != nil {
		return fmt.Errorf("%s: %w", day, err)
	}
	if in.Channels, err = s.keeper.readArchived(ctx, m.entry, m.instrument, day); err != nil {
		return fmt.Errorf("%s: %w", day, err)
	}
	plan, err := Plan(in)
	if err != nil {
		return fmt.Errorf("%s: %w", day, err)
	}
	m.input, m.plan = &in, &plan
	return nil
}

// record gives the gaps of a day their causes, and writes what is new.
func (s *station) record(ctx context.Context, m *member, day wire.Day) error {
	k, in, plan := s.keeper, m.input, *m.plan
	if len(plan.Gaps) > 0 {
		var err error
		if in.Evidence, err = k.evidence(ctx, m.entry, day); err != nil {
			return fmt.Errorf("%s: %w", day, err)
		}
		if in.Evidence.Others, err = s.others(ctx, m, day); err != nil {
			return fmt.Errorf("%s: %w", day, err)
		}
		if plan, err = Plan(*in); err != nil {
			return fmt.Errorf("%s: %w", day, err)
		}
	}
	start, err := day.Start()
	if err != nil {
		return err
	}
	if whole := !plan.Until.Before(start.AddDate(0, 0, 1)); whole && day == m.next {
		m.next = wire.DayOf(start.AddDate(0, 0, 1))
	}
	if !worthWriting(in.Was, &plan) {
		return nil
	}
	value, err := wire.Encode(plan)
	if err != nil {
		return err
	}
	if err := k.cfg.Lease.Check(); err != nil {
		return err
	}
	if _, err := k.kv.Put(ctx, wire.GapsKey(m.entry.Instrument, day), value); err != nil {
		return err
	}
	k.count(m.entry.Instrument, in.Was, &plan)
	return nil
}

// others returns the days of the station's other instruments that always observe: as this pass plans them, else as an earlier one wrote
// them.
func (s *station) others(ctx context.Context, m *member, day wire.Day) ([]wire.DayGaps, error) {
	var days []wire.DayGaps
	for _, o := range s.members {
		e := o.entry
		if o == m || e.Observes != nil || e.Maintenance || e.Retired {
			continue
		}
		plan := o.plan
		if plan == nil {
			var err error
			if plan, err = s.keeper.readGaps(ctx, e.Instrument, day); err != nil {
				return nil, err
			}
		}
		if plan != nil && plan.Due > 0 {
			days = append(days, *plan)
		}
	}
	return days, nil
}
