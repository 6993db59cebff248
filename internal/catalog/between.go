// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"container/heap"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// By says which time of an object counts.
type By int

const (
	// ByReceived: when it was received.
	ByReceived By = iota
	// ByObserved: what time it observes, from the first to the last instant; if that is not known, when the object was received.
	ByObserved
)

// Span returns the first and the last instant of an object.
func (by By) Span(r *wire.Record) (from, to time.Time) {
	if by == ByReceived {
		return r.ReceivedAt, r.ReceivedAt
	}
	return r.Observed()
}

// bounds returns a time before which nothing of a day begins, and one after which
// nothing ends.
func (by By) bounds(d wire.RootDay, fresh []*item) (from, to time.Time, err error) {
	if by == ByReceived {
		from, err = d.Day.Start()
		return from, from.AddDate(0, 0, 1), err
	}
	from, to, err = d.Observed()
	for _, f := range fresh {
		first, last := f.record.Observed()
		if first.Before(from) {
			from = first
		}
		if last.After(to) {
			to = last
		}
	}
	return from, to, err
}

// Between yields the current objects of an instrument that touch the time from an
// instant on and before another, in the order of the instants at which they begin;
// a zero time is no bound. Days are read as they are needed: where data came late,
// several are held at a time. After an error it ends. Errors: those of the store and
// of manifests.
func (c *Catalog) Between(ctx context.Context, instrument string, from, to time.Time, by By) iter.Seq2[wire.Record, error] {
	return func(yield func(wire.Record, error) bool) {
		s, err := c.readSnapshot(ctx, instrument)
		if err != nil {
			yield(wire.Record{}, err)
			return
		}
		m := &merged{c: c, s: s, by: by, from: from, to: to}
		if err := m.plan(); err != nil {
			yield(wire.Record{}, err)
			return
		}
		for {
			r, err := m.next(ctx)
			if r == nil && err == nil {
				return
			}
			if err != nil {
				yield(wire.Record{}, err)
				return
			}
			if !yield(*r, nil) {
				return
			}
		}
	}
}

// Tag names what Between yields: of two that are equal it yields the same. It decodes
// nothing. Errors: as Between.
func (c *Catalog) Tag(ctx context.Context, instrument string, from, to time.Time, by By) (string, error) {
	s, err := c.readSnapshot(ctx, instrument)
	if err != nil {
		return "", err
	}
	m := &merged{c: c, s: s, by: by, from: from, to: to}
	if err := m.plan(); err != nil {
		return "", err
	}
	all := sha256.New()
	for _, d := range m.waiting {
		fmt.Fprintln(all, tagOf(d.RootDay, s.epoch, s.fresh[d.Day]))
	}
	return hex.EncodeToString(all.Sum(nil)[:12]), nil
}

// merged reads days, and puts their records in order.
type merged struct {
	c        *Catalog
	s        snapshot
	by       By
	from, to time.Time
	// waiting days, the one that may begin first in front.
	waiting []bounded
	open    runs
}

type bounded struct {
	wire.RootDay
	from time.Time
}

func (m *merged) plan() error {
	for _, d := range m.s.candidates(func(d wire.RootDay) bool { return d.Entries > 0 }) {
		from, to, err := m.by.bounds(d, m.s.fresh[d.Day])
		if err != nil {
			return err
		}
		if !m.to.IsZero() && !from.Before(m.to) || to.Before(m.from) {
			continue
		}
		m.waiting = append(m.waiting, bounded{d, from})
	}
	slices.SortStableFunc(m.waiting, func(a, b bounded) int {
		return cmp.Or(a.from.Compare(b.from), strings.Compare(string(a.Day), string(b.Day)))
	})
	return nil
}

// next returns the record that begins first, nil after the last.
func (m *merged) next(ctx context.Context) (*wire.Record, error) {
	for len(m.waiting) > 0 && (len(m.open) == 0 || !m.open[0].begins().Before(m.waiting[0].from)) {
		d, err := m.c.day(ctx, m.s, m.waiting[0].RootDay)
		if err != nil {
			return nil, err
		}
		m.waiting = m.waiting[1:]
		if r := m.run(d); len(r.records) > 0 {
			heap.Push(&m.open, r)
		}
	}
	if len(m.open) == 0 {
		return nil, nil
	}
	first := m.open[0]
	r := first.records[0]
	if first.records = first.records[1:]; len(first.records) == 0 {
		heap.Pop(&m.open)
	} else {
		heap.Fix(&m.open, 0)
	}
	return r, nil
}

// run is what is left of one day, in order.
type run struct {
	by      By
	records []*wire.Record
}

func (r *run) begins() time.Time {
	from, _ := r.by.Span(r.records[0])
	return from
}

func (m *merged) run(d *Day) *run {
	out := &run{by: m.by}
	for _, r := range d.Records {
		if r.State != wire.StateCurrent {
			continue
		}
		from, to := m.by.Span(r)
		if to.Before(m.from) || !m.to.IsZero() && !from.Before(m.to) {
			continue
		}
		out.records = append(out.records, r)
	}
	slices.SortFunc(out.records, func(a, b *wire.Record) int { return m.by.compare(a, b) })
	return out
}

func (by By) compare(a, b *wire.Record) int {
	x, _ := by.Span(a)
	y, _ := by.Span(b)
	return cmp.Or(x.Compare(y), a.ReceivedAt.Compare(b.ReceivedAt), strings.Compare(a.ID, b.ID))
}

// runs is a heap: the one that begins first is on top.
type runs []*run

func (h runs) Len() int           { return len(h) }
func (h runs) Less(i, j int) bool { return h[i].by.compare(h[i].records[0], h[j].records[0]) < 0 }
func (h runs) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *runs) Push(x any)        { *h = append(*h, x.(*run)) }
func (h *runs) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
