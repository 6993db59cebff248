// SPDX-License-Identifier: Apache-2.0

package surge

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Next decides which level holds, and the floors that follow.
//
// A level begins when one of its rules is fulfilled, and ends when all of them were known to be unfulfilled for its Hold. The level
// that holds is the last one, in the order of declaration, that began and did not end. The floor of a pool is the highest one of all
// levels that did. It rises at once, and falls by one pod each ReleaseEvery of the level that raised it.
//
// A verdict of Unknown raises nothing and lowers nothing: the level and the floors stay, and the countdowns to their fall are stopped.
func Next(levels []Level, signals Signals, was State, now time.Time) (State, Decision) {
	p := pass{levels: levels, was: was, now: now.UTC().Truncate(time.Second), verdicts: make([]verdict, len(levels)), holds: -1}
	for i := range levels {
		p.verdicts[i] = levels[i].judge(signals, p.now)
	}
	p.stepLevels()
	p.stepFloors()
	p.staleness(signals)
	return p.next, p.decide()
}

// pass is one call of Next.
type pass struct {
	levels   []Level
	verdicts []verdict // of each level
	was      State
	now      time.Time

	next State
	// holds is the number of the level that does; -1: none.
	holds int
	// again is when to look again; zero: never.
	again time.Time
}

// lookIn notes that something will happen.
func (p *pass) lookIn(d time.Duration) {
	if at := p.now.Add(max(d, time.Second)); p.again.IsZero() || at.Before(p.again) {
		p.again = at
	}
}

// stepLevels begins, holds and ends levels.
func (p *pass) stepLevels() {
	for i := range p.levels {
		if state, holds := p.stepLevel(&p.levels[i], p.verdicts[i]); holds {
			p.next.Levels = append(p.next.Levels, state)
			p.holds = i
		}
	}
	p.next.Since = p.was.Since
	if p.holds >= 0 {
		p.next.Level = p.levels[p.holds].Name
	}
	if p.next.Level != p.was.Level {
		p.next.Since = p.now
	}
}

// stepLevel returns false for a level that does not hold.
func (p *pass) stepLevel(l *Level, v verdict) (LevelState, bool) {
	was, held := p.was.level(l.Name)
	switch {
	case v.is == True && held && was.Hold == nil:
		return was, true
	case v.is == True:
		return LevelState{Name: l.Name, Because: v.lasting}, true
	case !held:
		return was, false
	case v.is == Unknown && was.Hold == nil:
		return was, true
	}
	var ran time.Duration
	was.Hold, ran = was.Hold.next(v.is == Unknown, p.now)
	if v.is == Unknown {
		return was, true
	}
	if left := l.hold() - ran; left > 0 {
		p.lookIn(left)
		return was, true
	}
	return was, false
}

func (s *State) level(name string) (LevelState, bool) {
	if i := slices.IndexFunc(s.Levels, func(l LevelState) bool { return l.Name == name }); i >= 0 {
		return s.Levels[i], true
	}
	return LevelState{}, false
}

// stepFloors raises floors, and lowers them slowly.
func (p *pass) stepFloors() {
	for _, pool := range p.pools() {
		if f := p.stepFloor(pool); f.Replicas > 0 {
			p.next.Floors = append(p.next.Floors, f)
		}
	}
	// A status takes no more. Levels name 32 pools at most, so those that are let go were named by levels that are declared no more.
	for i := len(p.next.Floors) - 1; i >= 0 && len(p.next.Floors) > maxFloors; i-- {
		if p.asks(p.next.Floors[i].Pool).Replicas == 0 {
			p.next.Floors = slices.Delete(p.next.Floors, i, i+1)
		}
	}
}

// maxFloors is how many floors a Site's status has at most (MaxItems of status.surge.floors).
const maxFloors = 64

func (p *pass) stepFloor(pool Pool) FloorState {
	asked, floor := p.asks(pool), p.was.Floor(pool)
	if asked.Replicas >= floor.Replicas {
		return asked
	}
	every := releaseUndeclared
	if i := p.levelIndex(floor.Level); i >= 0 {
		every = p.levels[i].releaseEvery()
	}
	stop := p.unknownAbove(pool, asked.Replicas)
	var ran time.Duration
	floor.Release, ran = floor.Release.next(stop, p.now)
	if stop {
		return floor
	}
	if ran >= every {
		// One pod, even if the operator was away for longer: the level meanwhile is not known.
		floor.Replicas--
		floor.Release, ran = &Countdown{From: p.now}, 0
		if floor.Replicas == asked.Replicas {
			return asked
		}
	}
	p.lookIn(every - ran)
	return floor
}

// asks returns the floor that the levels that hold ask for.
func (p *pass) asks(pool Pool) FloorState {
	f := FloorState{Pool: pool}
	for _, state := range p.next.Levels {
		if n := p.levels[p.levelIndex(state.Name)].Floor(pool); n > f.Replicas {
			f.Replicas, f.Level = n, state.Name
		}
	}
	return f
}

// unknownAbove returns whether a level whose rules cannot be judged has a higher floor.
func (p *pass) unknownAbove(pool Pool, replicas int32) bool {
	for i := range p.levels {
		if p.verdicts[i].is == Unknown && p.levels[i].Floor(pool) > replicas {
			return true
		}
	}
	return false
}

// Floor returns the floor of a pool: its own, or else the floor of each pool of its kind, which was the pool's before levels named it.
func (s *State) Floor(of Pool) FloorState {
	found := FloorState{Pool: of}
	for _, f := range s.Floors {
		if f.Pool == of {
			return f
		}
		if f.Kind == of.Kind && f.Name == "" {
			found.Replicas, found.Level, found.Release = f.Replicas, f.Level, f.Release
		}
	}
	return found
}

// pools are all that have floors, or had.
func (p *pass) pools() []Pool {
	var all []Pool
	for _, l := range p.levels {
		for _, f := range l.Floors {
			all = append(all, Pool{f.Kind, f.Name})
		}
	}
	for _, f := range p.was.Floors {
		all = append(all, f.Pool)
	}
	slices.SortFunc(all, func(a, b Pool) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(all)
}

func (p *pass) levelIndex(level string) int {
	return slices.IndexFunc(p.levels, func(l Level) bool { return l.Name == level })
}

// staleness notes when what is known now becomes unknown.
func (p *pass) staleness(signals Signals) {
	asked := Asked(p.levels)
	for _, s := range signals {
		if newest, is := s.Newest(); is && s.Fresh(p.now) && slices.Contains(asked, s.Quantity) {
			p.lookIn(newest.To.Add(s.StaleAfter).Sub(p.now) + time.Second)
		}
	}
}

// decide puts the state into words.
func (p *pass) decide() Decision {
	d := Decision{Why: p.why(verdict.aging), Lasting: p.why(verdict.holding)}
	for i, v := range p.verdicts {
		if v.is == Unknown {
			d.Unknown = fmt.Sprintf("nobody knows whether %s is fulfilled: %s", p.levels[i].Name, v.why)
			break
		}
	}
	if p.holds >= 0 {
		d.Steady, d.Verdict = p.steady(), p.verdicts[p.holds].is
	}
	if !p.again.IsZero() {
		d.LookAgain = p.again.Sub(p.now)
	}
	return d
}

// why explains why the level is the one that it is, in words of verdicts.
func (p *pass) why(words func(verdict) string) string {
	if p.holds < 0 {
		return p.whyNone(words)
	}
	state, v := p.next.Levels[len(p.next.Levels)-1], p.verdicts[p.holds]
	switch {
	case v.is == True:
		return words(v)
	case v.is == Unknown:
		return fmt.Sprintf("%s stays, because it began with %s and %s", state.Name, state.Because, words(v))
	}
	return fmt.Sprintf("%s is held until %s: it began with %s, now %s", state.Name, p.until(state), state.Because, words(v))
}

// steady explains why the level holds, without what is measured now.
func (p *pass) steady() string {
	state := p.next.Levels[len(p.next.Levels)-1]
	switch p.verdicts[p.holds].is {
	case True:
		return fmt.Sprintf("%s began with %s", state.Name, state.Because)
	case Unknown:
		return fmt.Sprintf("%s stays: it began with %s, and nobody knows whether it is fulfilled now", state.Name, state.Because)
	}
	return fmt.Sprintf("%s is held until %s: it began with %s, and is fulfilled no more", state.Name, p.until(state), state.Because)
}

// until is when the level ends that is held.
func (p *pass) until(state LevelState) string {
	return state.Hold.From.Add(p.levels[p.holds].hold()).UTC().Format(time.RFC3339)
}

// whyNone explains what is known of the lowest level, which is the closest one.
func (p *pass) whyNone(words func(verdict) string) string {
	if len(p.levels) == 0 {
		return "no levels are declared"
	}
	return words(p.verdicts[0])
}
