// SPDX-License-Identifier: Apache-2.0

package objectpath

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// legacySpace is how many records of a day are put in order at a time; at some
// 600 bytes each it is 20 MiB. A day with more is read several times.
const legacySpace = 1 << 15

// Legacy yields what came from one address to one port in one day, in the order
// in which it was received. Duplicates are left out. Errors: as
// manifest.Day.
func Legacy(ctx context.Context, store objectstore.Store, site string, l wire.Legacy, instruments []string) iter.Seq2[wire.Notice, error] {
	return legacy(ctx, store, site, l, instruments, legacySpace)
}

func legacy(ctx context.Context, store objectstore.Store, site string, l wire.Legacy, instruments []string, space int) iter.Seq2[wire.Notice, error] {
	return func(yield func(wire.Notice, error) bool) {
		var last *wire.Notice
		for {
			next, more, err := following(ctx, store, site, l, instruments, last, space)
			if err != nil {
				yield(wire.Notice{}, err)
				return
			}
			for _, n := range next {
				if !yield(n, nil) {
					return
				}
			}
			if !more {
				return
			}
			last = &next[len(next)-1]
		}
	}
}

// following returns the first notices after one, in order, as many as there is
// space for, and whether there are more.
func following(ctx context.Context, store objectstore.Store, site string, l wire.Legacy, instruments []string, after *wire.Notice, space int) ([]wire.Notice, bool, error) {
	var first latest
	more := false
	for _, instrument := range instruments {
		for r, err := range manifest.Day(ctx, store, site, instrument, l.Day) {
			if err != nil {
				return nil, false, fmt.Errorf("instrument %s, %s: %w", instrument, l.Day, err)
			}
			of, ok := wire.LegacyOf(r)
			if !ok || of != l || after != nil && wire.ByReceipt(&after.Record, &r) >= 0 {
				continue
			}
			if len(first) == space {
				more = true
				if wire.ByReceipt(&r, &first[0].Record) >= 0 {
					continue
				}
				heap.Pop(&first)
			}
			heap.Push(&first, wire.Notice{Site: site, Instrument: instrument, Record: r})
		}
	}
	slices.SortFunc(first, func(a, b wire.Notice) int { return wire.ByReceipt(&a.Record, &b.Record) })
	return first, more, nil
}

// latest is a heap whose first element was received last.
type latest []wire.Notice

func (h latest) Len() int           { return len(h) }
func (h latest) Less(i, j int) bool { return wire.ByReceipt(&h[j].Record, &h[i].Record) < 0 }
func (h latest) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *latest) Push(x any)        { *h = append(*h, x.(wire.Notice)) }
func (h *latest) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// Append writes an object as it came: what stood around its bytes, and the bytes,
// which are compared with their digest as they pass.
func Append(ctx context.Context, store objectstore.Store, r wire.Record, out io.Writer) error {
	body, err := Open(ctx, store, r)
	if err != nil {
		return err
	}
	defer body.Close()
	head, tail := Framed(r)
	if _, err := out.Write(head); err != nil {
		return err
	}
	if _, err := io.Copy(out, body); err != nil {
		return err
	}
	_, err = out.Write(tail)
	return err
}

// Folder sums up one Legacy.
type Folder struct {
	wire.Legacy
	Objects int64
	// Bytes with what stood around the objects.
	Bytes       int64
	First, Last time.Time
	// Instruments whose objects it holds, in order.
	Instruments []string
}

// Folders returns the Legacies of a day that hold anything, in the order of their
// addresses and ports. Errors: as manifest.Day.
func Folders(ctx context.Context, store objectstore.Store, site string, day wire.Day, instruments []string) ([]Folder, error) {
	found := map[wire.Legacy]*Folder{}
	for _, instrument := range instruments {
		for r, err := range manifest.Day(ctx, store, site, instrument, day) {
			if err != nil {
				return nil, fmt.Errorf("instrument %s, %s: %w", instrument, day, err)
			}
			l, ok := wire.LegacyOf(r)
			if !ok {
				continue
			}
			if found[l] == nil {
				found[l] = &Folder{Legacy: l, First: r.ReceivedAt}
			}
			found[l].add(instrument, r)
		}
	}
	return slices.SortedFunc(func(yield func(Folder) bool) {
		for f := range maps.Values(found) {
			if !yield(*f) {
				return
			}
		}
	}, func(a, b Folder) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port))
	}), nil
}

func (f *Folder) add(instrument string, r wire.Record) {
	head, tail := Framed(r)
	f.Objects++
	f.Bytes += r.Size + int64(len(head)+len(tail))
	if r.ReceivedAt.Before(f.First) {
		f.First = r.ReceivedAt
	}
	if r.ReceivedAt.After(f.Last) {
		f.Last = r.ReceivedAt
	}
	if !slices.Contains(f.Instruments, instrument) {
		f.Instruments = append(f.Instruments, instrument)
	}
}
