// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// refillHeld notices are held in memory: at some KiB each 8 MiB. A day with more
	// is read several times.
	refillHeld = 8192
	// refillShare is how much of the stream may be filled: instruments keep sending.
	refillShare = 0.7
)

// notices yields what the manifests list of a day, of all instruments, that was announced: objects, and the duplicates
// of others. Manifests that cannot be read are left out and logged.
func (r *refill) notices(ctx context.Context, day wire.Day) iter.Seq2[wire.Notice, error] {
	return func(yield func(wire.Notice, error) bool) {
		for instrument, err := range read.Instruments(ctx, r.Store, r.Site) {
			if err != nil {
				yield(wire.Notice{}, err)
				return
			}
			for record, err := range read.Records(ctx, r.Store, r.Site, instrument, day) {
				if errors.Is(err, wire.ErrMalformed) {
					r.Log.Error("cannot read a manifest: what it lists is not announced again", "instrument", instrument, "day", day, "error", err)
					break
				}
				if err != nil {
					yield(wire.Notice{}, fmt.Errorf("manifest of %s of instrument %s: %w", day, instrument, err))
					return
				}
				if record.State == wire.StatePurged {
					continue
				}
				if !yield(wire.Notice{Site: r.Site, Instrument: instrument, Record: record}, nil) {
					return
				}
			}
		}
	}
}

// inOrder is the order in which notices are announced again.
func inOrder(a, b wire.Notice) int {
	if c := a.ReceivedAt.Compare(b.ReceivedAt); c != 0 {
		return c
	}
	return strings.Compare(a.MessageID(), b.MessageID())
}

// youngest holds the first notices by inOrder, the last of them on top.
type youngest []wire.Notice

func (y youngest) Len() int           { return len(y) }
func (y youngest) Less(i, j int) bool { return inOrder(y[i], y[j]) > 0 }
func (y youngest) Swap(i, j int)      { y[i], y[j] = y[j], y[i] }
func (y *youngest) Push(n any)        { *y = append(*y, n.(wire.Notice)) }
func (y *youngest) Pop() any {
	last := (*y)[len(*y)-1]
	*y = (*y)[:len(*y)-1]
	return last
}

// next returns the first notices of a day behind the cursor, in order, and whether
// there are more.
func (r *refill) next(ctx context.Context, day wire.Day) (first []wire.Notice, more bool, err error) {
	var held youngest
	for n, err := range r.notices(ctx, day) {
		if err != nil {
			return nil, false, err
		}
		if n.ReceivedAt.Before(r.cursor.Since) || r.behind(n) {
			continue
		}
		if len(held) < refillHeld {
			heap.Push(&held, n)
			continue
		}
		more = true
		if inOrder(n, held[0]) < 0 {
			held[0] = n
			heap.Fix(&held, 0)
		}
	}
	slices.SortFunc(held, inOrder)
	return held, more, nil
}

// behind says whether a notice is in the stream, as the cursor says.
func (r *refill) behind(n wire.Notice) bool {
	if c := n.ReceivedAt.Compare(r.cursor.Through); c != 0 {
		return c < 0
	}
	return n.MessageID() <= r.cursor.ThroughID
}

// measured counts notices and their bytes by the minute of receipt.
type measured struct {
	since   time.Time
	minutes map[int64]tally
}

type tally struct{ count, bytes int64 }

// measure reads what is to be announced again.
func (r *refill) measure(ctx context.Context, since, now time.Time) (measured, error) {
	m := measured{since: since, minutes: map[int64]tally{}}
	last := wire.DayOf(now.Add(24 * time.Hour))
	for at := since; wire.DayOf(at) <= last; at = at.Add(24 * time.Hour) {
		for n, err := range r.notices(ctx, wire.DayOf(at)) {
			if err != nil {
				return measured{}, err
			}
			if n.ReceivedAt.Before(since) || r.found.has(n.MessageID()) {
				continue
			}
			message, err := stream.NoticeMessage(n, r.Pod)
			if err != nil {
				return measured{}, err
			}
			minute := n.ReceivedAt.Unix() / 60
			was := m.minutes[minute]
			m.minutes[minute] = tally{was.count + 1, was.bytes + int64(message.Size())}
		}
	}
	return m, nil
}

// fit returns from when on all fits into space, in bytes, how many notices that are,
// and how many there are before. Negative space is boundless.
func (m measured) fit(space int64) (since time.Time, count, left int64) {
	since = m.since
	minutes := slices.Sorted(maps.Keys(m.minutes))
	slices.Reverse(minutes)
	full := false
	for _, minute := range minutes {
		t := m.minutes[minute]
		if space >= 0 && t.bytes > space && !full {
			full = true
			since = later(since, time.Unix((minute+1)*60, 0).UTC())
		}
		if full {
			left += t.count
			continue
		}
		count += t.count
		if space >= 0 {
			space -= t.bytes
		}
	}
	return since, count, left
}
