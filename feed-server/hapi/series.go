// SPDX-License-Identifier: Apache-2.0

package hapi

import (
	"context"
	"errors"
	"sort"

	"github.com/substorm/substorm/internal/decode"
	"github.com/substorm/substorm/internal/wire"
)

// segmentSize is up to which size in bytes all samples of a segment are decoded at once.
const segmentSize = 1 << 20

// seriesKey names a segment and how it is decoded.
type seriesKey struct {
	digest  wire.Digest
	decoder *decode.Decoder
}

// series are all samples of a segment. It is shared and never changes.
type series struct {
	key seriesKey
	// rows of width bytes in the order of their times, as rows have them.
	rows  []byte
	width int
	// undecodable are the records that could not be read.
	undecodable int
}

func (s *series) cost() int { return len(s.rows) + seriesCost }

// countBefore returns how many rows stand before a time.
func (s *series) countBefore(t int64) int {
	return sort.Search(len(s.rows)/s.width, func(i int) bool { return timeOf(s.rows[i*s.width:]) >= t })
}

// errLarge: a segment has more samples than are held of one.
var errLarge = errors.New("it has too many samples to hold in memory")

// seriesOf returns all samples of a segment. Errors: errLarge, and as fill.
func (m *merger) seriesOf(ctx context.Context, r *wire.Record) (*series, error) {
	key := seriesKey{r.Digest, m.dataset.decoder}
	if one := m.recent.get(key); one != nil {
		return one, nil
	}
	body, err := m.ahead.open(ctx, r)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	to := &m.scratch
	to.rows = m.newRows(to.rows.data[:0])
	err = m.decode(r, body, func(sample decode.Sample) error {
		if len(to.rows.data)+to.rows.width > sourceMemory {
			return errLarge
		}
		if err := m.grow(to); err != nil {
			return err
		}
		to.rows.add(sample)
		return nil
	})
	one := &series{key: key, width: to.rows.width}
	if one.undecodable, err = undecodable(err); err != nil {
		return nil, err
	}
	to.rows.sort()
	one.rows = to.rows.ordered()
	m.recent.put(one)
	return one, nil
}

// replay is the source of what is asked for of a series.
func (m *merger) replay(r *wire.Record, one *series) (*source, error) {
	if err := m.memory.take(len(one.rows)); err != nil {
		return nil, err
	}
	low, high := m.sampleSpan(r)
	near, far := one.countBefore(low), one.countBefore(high+1)
	m.distant += near + len(one.rows)/one.width - far
	m.undecodable += one.undecodable
	begin, end := max(near, one.countBefore(m.from)), min(far, one.countBefore(m.to))
	end = max(begin, end)
	return &source{record: r, rows: m.newRows(one.rows[begin*one.width : end*one.width]), ready: end - begin, reserved: len(one.rows)}, nil
}
