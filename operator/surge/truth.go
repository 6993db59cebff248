// SPDX-License-Identifier: Apache-2.0

package surge

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Truth is the result of judging a rule. Unknown is neither of the others: nothing is raised for it, and nothing lowered.
type Truth int

// The truth values.
const (
	Unknown Truth = iota
	False
	True
)

// verdict is the result for a threshold, a rule or a level, and why, in words. Lasting are words that hold for as long as the samples do:
// without an age.
type verdict struct {
	is           Truth
	why, lasting string
}

// aging and holding are the words of a verdict with ages and without.
func (v verdict) aging() string   { return v.why }
func (v verdict) holding() string { return v.lasting }

// newVerdict is a verdict whose words hold.
func newVerdict(is Truth, format string, args ...any) verdict {
	why := fmt.Sprintf(format, args...)
	return verdict{is, why, why}
}

// judge determines whether a level's rules are fulfilled: one is enough. If none is, it returns the verdict of the first rule, or of the
// first rule for which too little is known.
func (l *Level) judge(signals Signals, now time.Time) verdict {
	all := newVerdict(False, "it has no rules")
	for i, rule := range l.AnyOf {
		v := rule.judge(signals, now)
		if v.is == True {
			return v
		}
		if i == 0 || v.is == Unknown && all.is == False {
			all = v
		}
	}
	return all
}

// judge finds whether all thresholds are passed. One that is not decides, even if others are unknown.
func (r Rule) judge(signals Signals, now time.Time) verdict {
	if len(r) == 0 {
		return newVerdict(False, "a rule has no thresholds")
	}
	var unknown *verdict
	var passed, lasting []string
	for _, t := range r {
		switch v := t.judge(signals.Of(t.Quantity), now); v.is {
		case False:
			return v
		case Unknown:
			if unknown == nil {
				unknown = &v
			}
		case True:
			passed, lasting = append(passed, v.why), append(lasting, v.lasting)
		}
	}
	if unknown != nil {
		return *unknown
	}
	return verdict{True, strings.Join(passed, " and "), strings.Join(lasting, " and ")}
}

// judge finds whether the newest sample is beyond the threshold, or each one of the asked time.
func (t *Threshold) judge(s *Signal, now time.Time) verdict {
	newest, is := s.Newest()
	switch {
	case s == nil:
		return newVerdict(Unknown, "no source tells %s", t.Quantity)
	case !is:
		return newVerdict(Unknown, "%s told no %s yet", s.Source, t.Quantity)
	case Ahead(newest.From, now):
		return newVerdict(Unknown, "the newest %s of %s is of %s, which is yet to come: a clock is wrong", t.Quantity, s.Source, newest.From.UTC().Format(time.RFC3339))
	case !s.Fresh(now):
		age, _ := s.Age(now)
		return verdict{
			Unknown, fmt.Sprintf("%s of %s is %s old, and says nothing after %s", t.Quantity, s.Source, durationText(age), durationText(s.StaleAfter)),
			fmt.Sprintf("%s of %s says nothing of now: it is older than %s", t.Quantity, s.Source, durationText(s.StaleAfter)),
		}
	case math.IsNaN(newest.Value):
		return newVerdict(Unknown, "the newest %s of %s is no number", t.Quantity, s.Source)
	case t.For <= 0:
		return t.verdict(t.passed(newest.Value), s, newest, now)
	}
	return t.judgeTime(s, newest, now)
}

// judgeTime looks at the time before the end of the newest sample: sources are some minutes late, so before now there is never any. One
// sample that is not beyond the threshold decides, even if others are missing.
func (t *Threshold) judgeTime(s *Signal, newest Sample, now time.Time) verdict {
	end := newest.To
	if end.After(now) {
		end = now
	}
	start := end.Add(-t.For)
	from, whole := end, true // the samples lie without a gap from here on
	for i := len(s.Samples) - 1; i >= 0 && from.After(start); i-- {
		one := s.Samples[i]
		if !one.To.After(start) {
			break
		}
		if one.To.Before(from) || math.IsNaN(one.Value) {
			whole = false
		} else if t.passed(one.Value) == False {
			return t.verdict(False, s, one, now)
		}
		from = one.From
	}
	if !whole || from.After(start) {
		return newVerdict(Unknown, "%s of %s has gaps in the last %s", t.Quantity, s.Source, durationText(t.For))
	}
	return t.verdict(True, s, newest, now)
}

func (t *Threshold) passed(value float64) Truth {
	if t.AtLeast != nil && value >= *t.AtLeast || t.AtMost != nil && value <= *t.AtMost {
		return True
	}
	return False
}

// verdict describes a sample beside the threshold: Kp 7.7 (swpc-kp, 15 min old) ≥ 5.
func (t *Threshold) verdict(is Truth, s *Signal, one Sample, now time.Time) verdict {
	from := s.Source
	if one.Spacecraft != "" {
		from += ", " + one.Spacecraft
	}
	return verdict{is, t.say(from+", "+durationText(max(0, now.Sub(one.To)))+" old", one), t.say(from, one)}
}

func (t *Threshold) say(from string, one Sample) string {
	is := t.passed(one.Value) == True
	var bound float64
	sign := "≥"
	switch {
	case t.AtLeast != nil && is:
		bound = *t.AtLeast
	case t.AtLeast != nil:
		bound, sign = *t.AtLeast, "<"
	case t.AtMost != nil && is:
		bound, sign = *t.AtMost, "≤"
	case t.AtMost != nil:
		bound, sign = *t.AtMost, ">"
	default:
		return fmt.Sprintf("%s has no threshold", t.Quantity)
	}
	text := fmt.Sprintf("%s %.1f%s (%s) %s %g", t.Quantity, one.Value, t.Quantity.unit(), from, sign, bound)
	if t.For > 0 && is {
		text += " for " + durationText(t.For)
	}
	return text
}

func (q Quantity) unit() string {
	switch q {
	case Bz:
		return " nT"
	case Speed:
		return " km/s"
	default:
		return ""
	}
}

// durationText formats a duration for people, in two units at most.
func durationText(d time.Duration) string {
	d = d.Truncate(time.Second)
	switch {
	case d >= 24*time.Hour:
		return units(int(d/(24*time.Hour)), "d", int(d%(24*time.Hour)/time.Hour), "h")
	case d >= time.Hour:
		return units(int(d/time.Hour), "h", int(d%time.Hour/time.Minute), "min")
	case d >= time.Minute:
		return fmt.Sprintf("%d min", int(d/time.Minute))
	default:
		return fmt.Sprintf("%d s", int(d/time.Second))
	}
}

func units(a int, of string, b int, below string) string {
	if b == 0 {
		return fmt.Sprintf("%d %s", a, of)
	}
	return fmt.Sprintf("%d %s %d %s", a, of, b, below)
}
