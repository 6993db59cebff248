// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unique"

	"github.com/substorm/substorm/internal/wire"
)

// index remembers objects by digest, to recognize duplicates. It is bounded: when it is full, the
// oldest day is forgotten, and duplicates of it are listed as objects of their own.
type index struct {
	site        string
	max         int
	count       int
	metrics     *Metrics
	instruments map[string]*instrumentIndex
}

type instrumentIndex struct {
	loaded bool
	days   map[wire.Day]*indexDay
}

// indexDay has the objects of a day; more has those whose digest an earlier one
// had too, outside the repeat window.
type indexDay struct {
	first map[digestKey]original
	more  map[digestKey][]original
	count int
}

// digestKey is the first half of a SHA-256: what it takes to find two objects
// with the same one, 2^64 tries, is out of reach of chance.
type digestKey [16]byte

// original is the first of equal objects.
type original struct {
	receivedMillis int64
	// key is the key of the object, or of the pack in its ID: packs have many members. It is zero if it follows
	// from time and digest, as for a raw object. For an object that came from a spool, key is the part of the
	// ID behind the object's own key, without the nanoseconds.
	key unique.Handle[string]
	// offset in the pack; 0 for what is no member, the nanoseconds for what came
	// from a spool.
	offset int64
}

// ofSpool returns the original whose ID is wire.SpooledID: rest stands behind the
// key that the object would have by itself.
func ofSpool(receivedMillis int64, rest string) (original, bool) {
	i := strings.LastIndexByte(rest, '-')
	if i <= 0 || rest[0] != '-' {
		return original{}, false
	}
	nanoseconds, err := strconv.ParseInt(rest[i+1:], 10, 64)
	o := original{receivedMillis, unique.Make(rest[:i]), nanoseconds}
	return o, err == nil && o.rest() == rest
}

func (o original) rest() string { return fmt.Sprintf("%s-%06d", o.key.Value(), o.offset) }

// newOriginal returns the original with an ID. An ID that MemberID would not write
// is kept whole.
func newOriginal(receivedMillis int64, id string) original {
	if key, packed := wire.KeyOfID(id); packed {
		offset, err := strconv.ParseInt(id[len(key)+1:], 10, 64)
		if err == nil && offset > 0 && wire.MemberID(key, offset) == id {
			return original{receivedMillis, unique.Make(key), offset}
		}
	}
	return original{receivedMillis, unique.Make(id), 0}
}

func (o original) id() string {
	if o.offset > 0 {
		return wire.MemberID(o.key.Value(), o.offset)
	}
	return o.key.Value()
}

func newIndex(site string, size int, metrics *Metrics) *index {
	return &index{site: site, max: size, metrics: metrics, instruments: make(map[string]*instrumentIndex)}
}

func (x *index) of(instrument string) *instrumentIndex {
	i := x.instruments[instrument]
	if i == nil {
		i = &instrumentIndex{days: make(map[wire.Day]*indexDay)}
		x.instruments[instrument] = i
	}
	return i
}

func (x *index) loaded(instrument string) bool { return x.of(instrument).loaded }
func (x *index) setLoaded(instrument string)   { x.of(instrument).loaded = true }
func (x *index) hasSpace() bool                { return x.count < x.max }

// add remembers an object that others may duplicate. Segments are no duplicates of each other. An
// object that others can change, or whose digest was not computed by Substorm, is never a reason to
// remove a received object.
func (x *index) add(instrument string, r wire.Record) {
	if r.State != wire.StateCurrent || r.Segment != nil || r.DigestSource != "" || !wire.IsOurs(r.Key) {
		return
	}
	of := wire.DayOf(r.ReceivedAt)
	if !x.hasSpace() && !x.forgetOldest(instrument, of) {
		x.metrics.forgotten.Inc()
		return
	}
	key := digestKey(r.Digest[:16])
	o := original{receivedMillis: r.ReceivedAt.UnixMilli()}
	if rest, raw := strings.CutPrefix(r.ID, x.rawID(instrument, o, r.Digest)); !raw || rest != "" {
		var spooled bool
		if o, spooled = ofSpool(o.receivedMillis, rest); !raw || !spooled {
			o = newOriginal(r.ReceivedAt.UnixMilli(), r.ID)
		}
	}
	i := x.of(instrument)
	d := i.days[of]
	if d == nil {
		d = &indexDay{first: make(map[digestKey]original)}
		i.days[of] = d
	}
	switch was, known := d.first[key]; {
	case !known:
		d.first[key] = o
	case was == o || slices.Contains(d.more[key], o):
		return
	default:
		if d.more == nil {
			d.more = make(map[digestKey][]original)
		}
		d.more[key] = append(d.more[key], o)
	}
	d.count++
	x.count++
	x.metrics.indexed.Set(float64(x.count))
}

func (x *index) rawID(instrument string, o original, digest wire.Digest) string {
	return wire.RawKey(x.site, instrument, time.UnixMilli(o.receivedMillis), digest)
}

// find returns the ID of the earliest object with the digest that was received
// within the window before or after at, and not before since, and when it was received.
func (x *index) find(instrument string, digest wire.Digest, at time.Time, window time.Duration, since time.Time) (id string, receivedAt time.Time, found bool) {
	var first original
	consider := func(o original) {
		received := time.UnixMilli(o.receivedMillis)
		if at.Sub(received).Abs() > window || received.Before(since) {
			return
		}
		if !found || o.receivedMillis < first.receivedMillis {
			first, found = o, true
		}
	}
	key := digestKey(digest[:16])
	for _, d := range x.of(instrument).days {
		if o, ok := d.first[key]; ok {
			consider(o)
			for _, o := range d.more[key] {
				consider(o)
			}
		}
	}
	if !found {
		return "", time.Time{}, false
	}
	return x.idOf(instrument, first, digest), time.UnixMilli(first.receivedMillis).UTC(), true
}

// all returns the IDs of all objects with the digest that were received within the
// window before or after at.
func (x *index) all(instrument string, digest wire.Digest, at time.Time, window time.Duration) []string {
	var ids []string
	for _, d := range x.of(instrument).days {
		for _, o := range d.equal(digest) {
			if at.Sub(time.UnixMilli(o.receivedMillis)).Abs() <= window {
				ids = append(ids, x.idOf(instrument, o, digest))
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// remove forgets an object: no other may go for it.
func (x *index) remove(instrument string, digest wire.Digest, id string) {
	key := digestKey(digest[:16])
	for _, d := range x.of(instrument).days {
		left := slices.DeleteFunc(d.equal(digest), func(o original) bool { return x.idOf(instrument, o, digest) == id })
		before := 0
		if _, ok := d.first[key]; ok {
			before = 1 + len(d.more[key])
		}
		if len(left) == before {
			continue
		}
		delete(d.first, key)
		delete(d.more, key)
		if len(left) > 0 {
			d.first[key] = left[0]
		}
		if len(left) > 1 {
			d.more[key] = left[1:]
		}
		d.count -= before - len(left)
		x.count -= before - len(left)
	}
	x.metrics.indexed.Set(float64(x.count))
}

// removeDay forgets the objects of a day.
func (x *index) removeDay(instrument string, of wire.Day) {
	days := x.of(instrument).days
	if d := days[of]; d != nil {
		x.count -= d.count
		delete(days, of)
		x.metrics.indexed.Set(float64(x.count))
	}
}

// equal returns the objects of the day with the digest, in a slice of its own.
func (d *indexDay) equal(digest wire.Digest) []original {
	key := digestKey(digest[:16])
	first, ok := d.first[key]
	if !ok {
		return nil
	}
	return append([]original{first}, d.more[key]...)
}

func (x *index) idOf(instrument string, o original, digest wire.Digest) string {
	if o.key == (unique.Handle[string]{}) {
		return x.rawID(instrument, o, digest)
	}
	if o.key.Value()[0] == '-' {
		return x.rawID(instrument, o, digest) + o.rest()
	}
	return o.id()
}

// forgetOldest makes space by dropping the oldest day of any instrument but the
// one that is about to grow.
func (x *index) forgetOldest(growing string, growingDay wire.Day) bool {
	var instrument string
	var oldest wire.Day
	for name, i := range x.instruments {
		for d := range i.days {
			if name == growing && d == growingDay {
				continue
			}
			if oldest == "" || d < oldest {
				instrument, oldest = name, d
			}
		}
	}
	if oldest == "" || oldest > growingDay {
		return false
	}
	dropped := x.instruments[instrument].days[oldest].count
	delete(x.instruments[instrument].days, oldest)
	x.count -= dropped
	x.metrics.forgotten.Add(float64(dropped))
	x.metrics.indexed.Set(float64(x.count))
	return true
}
