// SPDX-License-Identifier: Apache-2.0

package hapi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/decode"
	"github.com/substorm/substorm/internal/wire"
)

// sourceMemory is how many bytes of samples are put in order at a time. Within an object
// of more, no sample may be further from its place.
const sourceMemory = 4 << 20

// errDisorder: a source's samples cannot be put in order.
var errDisorder = errors.New("its samples are not in the order of their times")

// errTooMuch: the objects that hold one moment do not fit in memory together.
var errTooMuch = errors.New("too many objects hold one time: their samples do not fit in memory")

// timeWidth is what a sample's time takes in a row.
const timeWidth = 8

// budget is the memory of one request.
type budget struct{ free int }

// take reserves, or says that there is not enough.
func (b *budget) take(n int) error {
	if n > b.free {
		return errTooMuch
	}
	b.free -= n
	return nil
}

// rows are samples of one width: time and values, one after the other.
type rows struct {
	width int
	data  []byte
	// order is in which order they are to be read; nil: as they lie.
	order []int32
	// sorted as long as they lie in order. last is the time of the last one.
	sorted bool
	last   int64
}

func (r *rows) count() int { return len(r.data) / r.width }

func (r *rows) add(s decode.Sample) {
	r.sorted = r.sorted && (len(r.data) == 0 || s.Time >= r.last)
	r.last = s.Time
	r.data = binary.LittleEndian.AppendUint64(r.data, uint64(s.Time))
	r.data = append(r.data, s.Values...)
}

// at returns the i'th row in order.
func (r *rows) at(i int) []byte {
	if r.order != nil {
		i = int(r.order[i])
	}
	return r.data[i*r.width : (i+1)*r.width]
}

func timeOf(row []byte) int64 { return int64(binary.LittleEndian.Uint64(row)) }

// sort finds the order. Of samples with one time the later one stays behind.
func (r *rows) sort() {
	if r.sorted {
		r.order = nil
		return
	}
	r.order = slices.Grow(r.order[:0], r.count())
	for i := range r.count() {
		r.order = append(r.order, int32(i))
	}
	slices.SortStableFunc(r.order, func(a, b int32) int {
		x, y := timeOf(r.data[int(a)*r.width:]), timeOf(r.data[int(b)*r.width:])
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
}

// keep drops the first n rows in order, and lays out the others in order.
func (r *rows) keep(n int) {
	if r.order == nil {
		r.data = r.data[:copy(r.data, r.data[n*r.width:])]
		return
	}
	data := make([]byte, 0, cap(r.data))
	for i := n; i < len(r.order); i++ {
		data = append(data, r.at(i)...)
	}
	r.data, r.order, r.sorted = data, nil, true
	if len(data) > 0 {
		r.last = timeOf(data[len(data)-r.width:])
	}
}

// source is one object or segment, whose samples come in the order of their times.
type source struct {
	record *wire.Record
	// rows hold what was read and is in order: the i'th of ready comes next.
	rows     rows
	i, ready int
	// next reads on, and returns how many rows are ready.
	next func() (int, error, bool)
	stop func()

	// row is what comes first, time its time.
	row  []byte
	time int64
}

// advance goes to the next sample; ok is false at the end.
func (s *source) advance() (ok bool, err error) {
	for s.i == s.ready {
		s.i = 0
		if s.ready, err, ok = s.next(); err != nil || !ok {
			return false, err
		}
	}
	s.row = s.rows.at(s.i)
	s.time = timeOf(s.row)
	s.i++
	return true, nil
}

// openSource begins to read a record's samples.
func (m *merger) openSource(ctx context.Context, r *wire.Record) *source {
	s := &source{record: r, rows: rows{width: timeWidth + m.dataset.decoder.Width(), sorted: true, data: m.spare[:0]}}
	m.spare = nil
	s.next, s.stop = iter.Pull2(m.samples(ctx, s))
	return s
}

// samples yields how many rows of a source are in order. They are good until more are
// asked for.
func (m *merger) samples(ctx context.Context, s *source) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		err := m.fill(ctx, s, yield)
		if errors.Is(err, errStopped) {
			return
		}
		if err != nil {
			yield(0, fmt.Errorf("object %s: %w", s.record.ID, err))
			return
		}
		s.rows.sort()
		yield(s.rows.count(), nil)
	}
}

// errStopped: nobody wants more.
var errStopped = errors.New("stopped")

// fill reads the object. What is too much is put in order and yielded by halves.
func (m *merger) fill(ctx context.Context, s *source, yield func(int, error) bool) error {
	body, err := m.ahead.open(ctx, s.record)
	if err != nil {
		return err
	}
	defer body.Close()
	r := &s.rows
	low, high := m.reach(s.record)
	yielded := int64(math.MinInt64)
	err = m.decode(s.record, body, func(sample decode.Sample) error {
		switch {
		case sample.Time < low || sample.Time > high:
			m.distant++
			return nil
		case sample.Time < m.from || sample.Time >= m.to:
			return nil
		case sample.Time < yielded:
			return errDisorder
		}
		if len(r.data)+r.width > cap(r.data) {
			if err := m.grow(s); err != nil {
				return err
			}
		}
		if r.add(sample); len(r.data)+r.width <= sourceMemory {
			return nil
		}
		r.sort()
		half := r.count()/2 + 1
		yielded = timeOf(r.at(half - 1))
		if !yield(half, nil) {
			return errStopped
		}
		r.keep(half)
		return ctx.Err()
	})
	var undecodable *decode.Undecodable
	if errors.As(err, &undecodable) {
		m.undecodable += undecodable.Records
		err = nil
	}
	return err
}

// grow makes room for as many rows again, out of the request's memory.
func (m *merger) grow(s *source) error {
	r := &s.rows
	room := min(max(2*cap(r.data), 64*r.width), sourceMemory)
	if err := m.memory.take(room - cap(r.data)); err != nil {
		return err
	}
	r.data = append(make([]byte, 0, room), r.data...)
	return nil
}

// decode reads an object's bytes to their end, so that they are compared with its digest.
func (m *merger) decode(r *wire.Record, body io.Reader, emit func(decode.Sample) error) error {
	var err error
	if r.Segment != nil {
		err = m.dataset.decoder.ReadSegment(body, emit)
	} else {
		at, _ := times(r)
		err = m.dataset.decoder.Read(body, at, emit)
	}
	var undecodable *decode.Undecodable
	if err != nil && !errors.As(err, &undecodable) {
		return err
	}
	if _, drained := io.Copy(io.Discard, body); drained != nil {
		return drained
	}
	return err
}

// cutTo is the coarsest precision that the times of a record may have been cut to.
const cutTo = time.Second

// reach is between which times, both included, the samples of a record lie: where it was
// decoded as it was archived, between those that were found, otherwise around when it was
// received. What precision its times were cut to then nobody knows any more; those of
// samples are cut to today's.
func (m *merger) reach(r *wire.Record) (low, high int64) {
	from, to := times(r)
	if delay := m.dataset.delay(); r.TimeSource != wire.TimeSourcePayload {
		from, to = from.Add(-delay), to.Add(delay)
	}
	cut := m.dataset.decoder.Cut
	return cut(from.UnixNano()), cut(to.Add(cutTo - 1).UnixNano())
}
