// SPDX-License-Identifier: Apache-2.0

package hapi

import (
	"encoding/binary"
	"slices"

	"github.com/substorm/substorm/internal/decode"
)

// timeWidth is what a sample's time takes in a row.
const timeWidth = 8

// rows are samples of one width: time and values, one after the other.
type rows struct {
	width int
	data  []byte
	// order is the order in which they are to be read; nil: as stored.
	order []int32
	// sorted as long as they are stored in order. last is the time of the last one.
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

// sort finds the order. If samples have one time, the later one stays behind.
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

// ordered returns a copy in order.
func (r *rows) ordered() []byte {
	data := make([]byte, 0, len(r.data))
	if r.order == nil {
		return append(data, r.data...)
	}
	for i := range r.order {
		data = append(data, r.at(i)...)
	}
	return data
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
