// SPDX-License-Identifier: Apache-2.0

package hapi

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/substorm/substorm/internal/decode"
	"github.com/substorm/substorm/internal/wire"
)

// The archive is asked for records by windows of time, so that a request for years does
// not hold the list of all. A window grows while there are few records; of one with many
// only the first part is taken, and the next ones are as short.
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
	// window is the least time that records of the next one may begin at; length is how long
	// it is, many how many records it may have.
	window int64
	length time.Duration
	many   int
	open   sources

	// row is a sample that is held: time and values.
	row []byte
	// recent holds samples for later requests; scratch is where they are decoded.
	recent  *recent
	scratch source

	undecodable, distant int
}

// candidate is a record, and the least time of its samples.
type candidate struct {
	record wire.Record
	low    int64
}

// size is what it takes of the request's memory, in bytes.
func (c *candidate) size() int {
	r := &c.record
	return int(unsafe.Sizeof(*c)) + len(r.ID) + len(r.Key) + len(r.Name) + len(r.Path)
}

func newMerger(archive Archive, recent *recent, d *dataset, from, to int64, memory int) *merger {
	known := func(r *wire.Record) bool { return recent.get(seriesKey{r.Digest, d.decoder}) != nil }
	return &merger{
		archive: archive, ahead: newAhead(archive, known, memory/aheadPart), recent: recent, dataset: d, from: from, to: to,
		memory: budget{memory - memory/aheadPart}, window: math.MinInt64, length: firstWindow, many: manyRecords,
	}
}

// next returns the next sample: time and values, which are good until it is called again;
// ok is false after the last.
func (m *merger) next(ctx context.Context) (row []byte, ok bool, err error) {
	if err := m.settle(ctx); err != nil || len(m.open) == 0 {
		return nil, false, err
	}
	// Every source that may hold another sample of this time is open, so the open sources suffice.
	s := m.open[0]
	t, row := s.time, s.row
	if s.i == s.ready { // what is read next takes its place
		row = m.hold(row)
	}
	if err := m.advanceFirst(); err != nil {
		return nil, false, err
	}
	for len(m.open) > 0 && m.open[0].time == t {
		row = m.hold(row)
		combine(row[timeWidth:], m.open[0].row[timeWidth:], m.dataset.decoder.Parameters())
		if err := m.advanceFirst(); err != nil {
			return nil, false, err
		}
	}
	return row, true, nil
}

// hold copies a row away from its source.
func (m *merger) hold(row []byte) []byte {
	m.row = append(m.row[:0], row...)
	return m.row
}

// advanceFirst advances past the first sample.
func (m *merger) advanceFirst() error {
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
	if s.stop != nil {
		s.stop()
	}
	m.memory.free += s.reserved
}

// end closes what is open.
func (m *merger) end() {
	for _, s := range m.open {
		m.close(s)
	}
	m.open = nil
	m.memory.free += m.scratch.reserved
	m.scratch = source{}
	m.drop(0)
	m.ahead.close()
}

// settle opens all records that may hold what comes first.
func (m *merger) settle(ctx context.Context) error {
	for {
		switch {
		case len(m.pending) > 0 && (len(m.open) == 0 || m.pending[0].low <= m.open[0].time):
			m.ahead.begin(ctx, m.pending)
			record := m.pending[0].record
			m.memory.free += m.pending[0].size()
			m.pending = m.pending[1:]
			if err := m.openRecord(ctx, &record); err != nil {
				return err
			}
		case m.window < m.to && len(m.pending) == 0 && (len(m.open) == 0 || m.window <= m.open[0].time):
			if err := m.findRecords(ctx); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

func (m *merger) openRecord(ctx context.Context, r *wire.Record) error {
	s, err := m.openSource(ctx, r)
	if err != nil {
		return err
	}
	ok, err := s.advance()
	if err != nil || !ok {
		m.close(s)
		return err
	}
	heap.Push(&m.open, s)
	return nil
}

// findRecords finds the records of the next window: records whose samples begin in it; in the first one
// also records that began before.
func (m *merger) findRecords(ctx context.Context) error {
	begin, end := max(m.window, m.from), m.to
	if m.to-begin > int64(m.length) { // both are of one dataset: their difference fits
		end = begin + int64(m.length)
	}
	delay := m.dataset.delay()
	ask := time.Unix(0, begin)
	if begin == m.from {
		ask = ask.Add(-delay - cutTo)
	}
	most, cut := 2*m.many, false
	for r, err := range m.archive.Observed(ctx, m.dataset.instrument.Instrument, ask, time.Unix(0, end).Add(delay+cutTo)) {
		if err != nil {
			return err
		}
		if !m.dataset.holds(&r) {
			continue
		}
		low, high := m.sampleSpan(&r)
		if low >= end || high < m.from || low < m.window {
			continue
		}
		c := candidate{r, low}
		if err := m.memory.take(c.size()); err != nil {
			return err
		}
		if m.pending = append(m.pending, c); len(m.pending) >= most {
			if first, some := m.narrow(); some {
				end, cut = first, true
			}
			most = len(m.pending) + m.many
		}
	}
	m.sort()
	switch {
	case cut:
		m.length = max(time.Duration(end-begin), minWindow)
	case len(m.pending) < fewRecords:
		m.length = min(2*m.length, maxWindow)
	case len(m.pending) > m.many:
		m.length = max(m.length/2, minWindow)
	}
	m.window = end
	return ctx.Err()
}

func (m *merger) sort() {
	slices.SortFunc(m.pending, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.low, b.low), cmp.Compare(a.record.ID, b.record.ID))
	})
}

// narrow leaves the later ones of too many records to another window, and returns where that
// begins; some is false if all are needed. Records that begin at one time stay together.
func (m *merger) narrow() (begin int64, some bool) {
	m.sort()
	n := m.many
	for n < len(m.pending) && m.pending[n].low == m.pending[n-1].low {
		n++
	}
	if n == len(m.pending) {
		return 0, false
	}
	begin = m.pending[n].low
	m.drop(n)
	return begin, true
}

// drop forgets all that is pending but the first n.
func (m *merger) drop(n int) {
	for i := range m.pending[n:] {
		m.memory.free += m.pending[n+i].size()
	}
	clear(m.pending[n:])
	m.pending = m.pending[:n]
}

// sources are the open ones, by the time of the next sample they hold; for one time the source that
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
