// SPDX-License-Identifier: Apache-2.0

package hapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"time"

	"github.com/substorm/substorm/internal/decode"
	"github.com/substorm/substorm/internal/wire"
)

// sourceMemory is how many bytes of samples are put in order at a time. Within an object
// of more, no sample may be further from its place.
const sourceMemory = 4 << 20

// errDisorder: a source's samples cannot be put in order.
var errDisorder = errors.New("its samples are not in order of time")

// errTooMuch: the objects that hold one moment do not fit in memory together.
var errTooMuch = errors.New("too many objects hold one time: their samples do not fit in memory")

// budget is the memory of one request.
type budget struct{ free int }

// take reserves memory, or returns an error if there is not enough.
func (b *budget) take(n int) error {
	if n > b.free {
		return errTooMuch
	}
	b.free -= n
	return nil
}

// source is one object or segment, whose samples come in the order of their times.
type source struct {
	record *wire.Record
	// rows hold what was read and is in order: the i'th of ready comes next.
	rows     rows
	i, ready int
	// next reads on, and returns how many rows are ready; nil where all was read.
	next     func() (int, error, bool)
	stop     func()
	reserved int

	// row is what comes first, time its time.
	row  []byte
	time int64
}

// advance goes to the next sample; ok is false at the end.
func (s *source) advance() (ok bool, err error) {
	for s.i == s.ready {
		if s.next == nil {
			return false, nil
		}
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

// openSource begins to read a record's samples: of a small segment all at once, as others
// will ask for them too.
func (m *merger) openSource(ctx context.Context, r *wire.Record) (*source, error) {
	if r.Segment != nil && r.Size <= segmentSize {
		one, err := m.seriesOf(ctx, r)
		if err == nil {
			return m.replay(r, one)
		}
		if !errors.Is(err, errLarge) {
			return nil, fmt.Errorf("object %s: %w", r.ID, err)
		}
	}
	s := &source{record: r, rows: m.newRows(nil)}
	s.next, s.stop = iter.Pull2(m.samples(ctx, s))
	return s, nil
}

func (m *merger) newRows(data []byte) rows {
	return rows{width: timeWidth + m.dataset.decoder.Width(), data: data, sorted: true}
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

// errStopped: the caller wants no more rows.
var errStopped = errors.New("stopped")

// fill reads the object. If its rows take more than sourceMemory, it puts them in order and yields them by halves.
func (m *merger) fill(ctx context.Context, s *source, yield func(int, error) bool) error {
	body, err := m.ahead.open(ctx, s.record)
	if err != nil {
		return err
	}
	defer body.Close()
	r := &s.rows
	low, high := m.sampleSpan(s.record)
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
		if err := m.grow(s); err != nil {
			return err
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
	bad, err := undecodable(err)
	m.undecodable += bad
	return err
}

// undecodable returns how many records could not be read, if err is only about these.
func undecodable(err error) (records int, other error) {
	if bad, ok := errors.AsType[*decode.Undecodable](err); ok {
		return bad.Records, nil
	}
	return 0, err
}

// grow makes space for another row, and for as many as there are, out of the request's
// memory.
func (m *merger) grow(s *source) error {
	r := &s.rows
	if len(r.data)+r.width <= cap(r.data) {
		return nil
	}
	space := min(max(2*cap(r.data), 64*r.width), sourceMemory)
	if err := m.memory.take(space - s.reserved); err != nil {
		return err
	}
	s.reserved = space
	r.data = append(make([]byte, 0, space), r.data...)
	return nil
}

// decode reads an object's bytes to their end, so that they are compared with its digest.
func (m *merger) decode(r *wire.Record, body io.Reader, emit func(decode.Sample) error) error {
	var err error
	if r.Segment != nil {
		err = m.dataset.decoder.ReadSegment(body, emit)
	} else {
		at, _ := r.Observed()
		err = m.dataset.decoder.ReadObject(body, r, at, emit)
	}
	if _, other := undecodable(err); other != nil {
		return other
	}
	if _, drained := io.Copy(io.Discard, body); drained != nil {
		return drained
	}
	return err
}

// cutTo is the coarsest precision that the times of a record may have been cut to.
const cutTo = time.Second

// sampleSpan is between which times, both included, the samples of a record are: if it was decoded when it was archived, between the times that
// were found, otherwise around the time of receipt; for objects within plausible times. The precision to which its times were cut then is
// no longer known; times of samples are cut to today's.
func (m *merger) sampleSpan(r *wire.Record) (low, high int64) {
	from, to, told := r.ObservedSpan()
	// A segment whose span is not believed, because of one datagram perhaps, has samples of other datagrams.
	decoded := told && r.TimeSource == wire.TimeSourcePayload
	if delay := m.dataset.delay(); !decoded {
		from, to = from.Add(-delay), to.Add(delay)
	}
	if !decoded && r.Gateway != wire.ImportWriter {
		least, greatest := wire.BelievedObserved(r.ReceivedAt)
		if from.Before(least) {
			from = least
		}
		if to.After(greatest) {
			to = greatest
		}
	}
	cut := m.dataset.decoder.Cut
	return cut(decode.Nanoseconds(from)), cut(decode.Nanoseconds(to.Add(cutTo - 1)))
}
