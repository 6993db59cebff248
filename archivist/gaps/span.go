// SPDX-License-Identifier: Apache-2.0

package gaps

import (
	"slices"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// merge returns spans in order, those that are at most so far apart as one.
func merge(spans []wire.TimeSpan, apart time.Duration) []wire.TimeSpan {
	all := slices.Clone(spans)
	slices.SortFunc(all, func(a, b wire.TimeSpan) int { return a.From.Compare(b.From) })
	var out []wire.TimeSpan
	for _, s := range all {
		n := len(out)
		if n == 0 || s.From.Sub(out[n-1].To) > apart {
			out = append(out, s)
		} else if s.To.After(out[n-1].To) {
			out[n-1].To = s.To
		}
	}
	return out
}

// clipSpans returns the parts of ordered spans between two instants.
func clipSpans(spans []wire.TimeSpan, from, to time.Time) []wire.TimeSpan {
	var out []wire.TimeSpan
	for _, s := range spans {
		s.From, s.To = maxTime(s.From, from), minTime(s.To, to)
		if s.From.Before(s.To) {
			out = append(out, s)
		}
	}
	return out
}

// subtract returns the parts of ordered spans that are in none of others.
func subtract(spans, others []wire.TimeSpan) []wire.TimeSpan {
	for _, o := range others {
		var left []wire.TimeSpan
		for _, s := range spans {
			before, after := wire.TimeSpan{From: s.From, To: minTime(s.To, o.From)}, wire.TimeSpan{From: maxTime(s.From, o.To), To: s.To}
			for _, part := range []wire.TimeSpan{before, after} {
				if part.From.Before(part.To) {
					left = append(left, part)
				}
			}
		}
		spans = left
	}
	return spans
}

func total(spans []wire.TimeSpan) (sum time.Duration) {
	for _, s := range spans {
		sum += s.To.Sub(s.From)
	}
	return sum
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func maxTime(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
