// SPDX-License-Identifier: Apache-2.0

package hapi

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/decode"
	"github.com/substorm/substorm/internal/wire"
)

// The archive is asked for records by windows of time, so that a request for years does
// not hold the list of all. A window grows while there are few records, and shrinks
// while there are many.
const (
	firstWindow = 6 * time.Hour
	minWindow   = 10 * time.Minute
	maxWindow   = 30 * day
	fewRecords  = 100
	manyRecords = 2000
)

// merger puts the samples of all records in the order of their times. Samples of one
// time are one: of each parameter what was received last counts, unless it is missing.
//
// A record is opened once no earlier sample can come from another one, by the least time
// that its own can have (reach). So open are only those that may hold the same moment.
type merger struct {
	archive Archive
	ahead   *ahead
	dataset *dataset
	// from (included) and to (excluded).
	from, to int64
	memory   budget

	// pending are the records of the window that are not open yet, the earliest first.
	pending []candidate
	// window is where the next one begins; length is how long it is.
	window int64
	length time.Duration
	first  bool
	open   sources

	// row is the sample that was found: time and values.
	row []byte

	undecodable, distant int
}

// candidate is a record, and the least time of its samples.
type candidate struct {
	record wire.Record
	low    int64
}

func newMerger(archive Archive, d *dataset, from, to int64, memory int) *merger {
	return &merger{
		archive: archive, ahead: newAhead(archive, memory/aheadPart), dataset: d, from: from, to: to,
		memory: budget{memory - memory/aheadPart}, window: from, length: firstWindow, first: true,
	}
}

// next returns the next sample, as row has it; ok is false after the last.
func (m *merger) next(ctx context.Context) (row []byte, ok bool, err error) {
	if err := m.settle(ctx); err != nil || len(m.open) == 0 {
		return nil, false, err
	}
	t := m.open[0].time
	m.row = append(m.row[:0], m.open[0].row...)
	if err := m.pass(); err != nil {
		return nil, false, err
	}
	for {
		// What begins at the same time may hold another sample of it.
		if err := m.settle(ctx); err != nil {
			return nil, false, err
		}
		if len(m.open) == 0 || m.open[0].time != t {
			return m.row, true, nil
		}
		combine(m.row[timeWidth:], m.open[0].row[timeWidth:], m.dataset.decoder.Parameters())
		if err := m.pass(); err != nil {
			return nil, false, err
		}
	}
}

// pass goes on behind the sample that comes first.
func (m *merger) pass() error {
	ok, err := m.open[0].advance()
	if err != nil {
		return err
	}
	if ok {
		heap.Fix(&m.open, 0)
		return nil
	}
	m.close(heap.Pop(&m.open).(*source))
	return nil
}

func (m *merger) close(s *source) {
	s.stop()
	m.memory.free += s.reserved
}

// end closes what is open.
func (m *merger) end() {
	for _, s := range m.open {
		m.close(s)
	}
	m.open = nil
	m.ahead.close()
}

// settle opens all records that may hold what comes first.
func (m *merger) settle(ctx context.Context) error {
	for {
		switch {
		case len(m.pending) > 0 && (len(m.open) == 0 || m.pending[0].low <= m.open[0].time):
			m.ahead.begin(ctx, m.pending)
			record := m.pending[0].record
			m.pending = m.pending[1:]
			if err := m.openRecord(ctx, &record); err != nil {
				return err
			}
		case m.window < m.to && len(m.pending) == 0 && (len(m.open) == 0 || m.window <= m.open[0].time):
			if err := m.look(ctx); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

func (m *merger) openRecord(ctx context.Context, r *wire.Record) error {
	s := m.openSource(ctx, r)
	ok, err := s.advance()
	if err != nil || !ok {
		m.close(s)
		return err
	}
	heap.Push(&m.open, s)
	return nil
}

// look finds the records of the next window: those whose samples begin in it; in the
// first one also those that began before.
func (m *merger) look(ctx context.Context) error {
	begin, end := m.window, m.to
	if m.to-m.window > int64(m.length) { // both are of one dataset: their difference fits
		end = m.window + int64(m.length)
	}
	delay := m.dataset.delay()
	ask := time.Unix(0, begin)
	if m.first {
		ask = ask.Add(-delay)
	}
	for r, err := range m.archive.Observed(ctx, m.dataset.instrument.Instrument, ask, time.Unix(0, end).Add(delay+2*time.Second)) {
		if err != nil {
			return err
		}
		if !m.dataset.holds(&r) {
			continue
		}
		low, high := m.reach(&r)
		if low >= end || high < m.from || low < begin && !m.first {
			continue
		}
		m.pending = append(m.pending, candidate{r, low})
	}
	slices.SortFunc(m.pending, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.low, b.low), cmp.Compare(a.record.ID, b.record.ID))
	})
	if len(m.pending) < fewRecords {
		m.length = min(2*m.length, maxWindow)
	} else if len(m.pending) > manyRecords {
		m.length = max(m.length/2, minWindow)
	}
	m.window, m.first = end, false
	return ctx.Err()
}

// sources are those that are open, by the time of what they hold next; of one time what
// was received last comes last.
type sources []*source

func (s sources) Len() int { return len(s) }
func (s sources) Less(i, j int) bool {
	if s[i].time != s[j].time {
		return s[i].time < s[j].time
	}
	if c := s[i].record.ReceivedAt.Compare(s[j].record.ReceivedAt); c != 0 {
		return c < 0
	}
	return s[i].record.ID < s[j].record.ID
}
func (s sources) Swap(i, j int) { s[i], s[j] = s[j], s[i] }

// Push implements heap.Interface.
func (s *sources) Push(x any) { *s = append(*s, x.(*source)) }

// Pop implements heap.Interface.
func (s *sources) Pop() any {
	last := len(*s) - 1
	x := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	return x
}

// combine puts those values of a later sample over an earlier one's that are not
// missing.
func combine(earlier, later []byte, parameters []decode.Parameter) {
	for i := range parameters {
		p := &parameters[i]
		for at := p.At; at < p.At+p.Count*p.Width; at += p.Width {
			if v := later[at : at+p.Width]; p.FillBytes == nil || !bytes.Equal(v, p.FillBytes) {
				copy(earlier[at:], v)
			}
		}
	}
}
