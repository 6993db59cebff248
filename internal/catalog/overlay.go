// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"maps"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// The overlay holds what was announced and is in no closed part yet, a minute of notices
// as a rule. The decisions of the manifest's writer are not known of it: whether an
// object is a duplicate, and which path it gets if its own is taken. An object that
// cannot be shown for certain waits until it is listed.

const (
	// maxRecords and maxBytes bound the overlay. If the manifest's writer is away for
	// long, the oldest notices wait until they are listed.
	maxRecords = 100_000
	maxBytes   = 64 << 20
	// itemCost is what a decoded notice takes beside its bytes.
	itemCost = 512
)

// item is one notice.
type item struct {
	sequence uint64
	// at is when the stream took the notice, in nanoseconds since 1970: a Site that is restored from a backup uses sequences again.
	at     int64
	size   int64
	of     dayKey
	path   string // published
	record wire.Record
}

type dayKey struct {
	instrument string
	day        wire.Day
}

// overlay is guarded by the catalog's mutex.
type overlay struct {
	maxRecords int
	maxBytes   int64
	metrics    *metrics

	epoch string
	// next is the first sequence that was not heard.
	next  uint64
	items []*item // in the order of the stream
	days  map[string]map[wire.Day][]*item
	bytes int64
}

func newOverlay(records int, bytes int64, m *metrics) *overlay {
	return &overlay{maxRecords: records, maxBytes: bytes, metrics: m, days: make(map[string]map[wire.Day][]*item)}
}

// begin returns from where on notices are wanted. Nothing is known of a stream that was
// created again.
func (o *overlay) begin(listed wire.StreamCursor) uint64 {
	if o.epoch != listed.Epoch {
		o.drop(len(o.items))
		o.epoch, o.next = listed.Epoch, 0
	}
	o.next = max(o.next, listed.Next)
	return o.next
}

func (o *overlay) reached(epoch string, sequence uint64) {
	if o.epoch == epoch {
		o.next = max(o.next, sequence+1)
	}
}

func (o *overlay) add(epoch string, sequence uint64, at time.Time, n wire.Notice, size int) {
	if o.epoch != epoch {
		return
	}
	of := dayKey{n.Instrument, wire.DayOf(n.ReceivedAt)}
	i := &item{sequence: sequence, at: at.UnixNano(), size: int64(size) + itemCost, of: of, path: n.Published(), record: n.Record}
	i.record.ReceivedAt = i.record.ReceivedAt.UTC()
	o.items = append(o.items, i)
	days := o.days[of.instrument]
	if days == nil {
		days = make(map[wire.Day][]*item)
		o.days[of.instrument] = days
	}
	// Earlier readers keep reading the shorter slice.
	days[of.day] = append(days[of.day], i)
	o.bytes += i.size
	over := 0
	for bytes := o.bytes; len(o.items)-over > o.maxRecords || bytes > o.maxBytes; over++ {
		bytes -= o.items[over].size
	}
	o.metrics.dropped.Add(float64(over))
	o.drop(over)
}

// heard says whether all that was listed was heard before.
func (o *overlay) heard(listed wire.StreamCursor) bool {
	return o.epoch == listed.Epoch && o.next >= listed.Next
}

// trim drops items that closed parts list. It returns the instruments with a retraction, restoration or purge among those items.
func (o *overlay) trim(listed wire.StreamCursor) (decided map[string]bool) {
	if o.epoch != listed.Epoch {
		return nil
	}
	o.next = max(o.next, listed.Next)
	listedItems := slices.IndexFunc(o.items, func(i *item) bool { return i.sequence >= listed.Next })
	if listedItems < 0 {
		listedItems = len(o.items)
	}
	for _, i := range o.items[:listedItems] {
		if i.record.IsChange() {
			if decided == nil {
				decided = make(map[string]bool)
			}
			decided[i.of.instrument] = true
		}
	}
	o.drop(listedItems)
	return decided
}

// drop forgets the oldest.
func (o *overlay) drop(count int) {
	for _, i := range o.items[:count] {
		days := o.days[i.of.instrument]
		if days[i.of.day] = days[i.of.day][1:]; len(days[i.of.day]) == 0 {
			delete(days, i.of.day)
		}
		if len(days) == 0 {
			delete(o.days, i.of.instrument)
		}
		o.bytes -= i.size
	}
	o.items = o.items[count:]
	if count > 0 && cap(o.items) > 4*len(o.items) {
		o.items = slices.Clone(o.items)
	}
	o.metrics.fresh.Set(float64(len(o.items)))
	o.metrics.freshBytes.Set(float64(o.bytes))
}

// of returns the notices of an instrument by day.
func (o *overlay) of(instrument string) map[wire.Day][]*item { return maps.Clone(o.days[instrument]) }

func (o *overlay) instruments() []string { return slices.Collect(maps.Keys(o.days)) }
