// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

func newSnapshot() *Snapshot {
	return &Snapshot{
		Problems: map[string]string{},
		Feeds:    map[string]wire.FeedEntry{}, Consumers: map[string]wire.ConsumerEntry{},
		Readers: map[string]wire.ReaderEntry{}, Instruments: map[string]wire.InstrumentEntry{}, Mirrors: map[string]wire.MirrorEntry{},
		Movers: map[string][]wire.Digest{},
	}
}

// Bucket is what is known of the registry's bucket at one moment.
type Bucket struct {
	// epoch is when the bucket was created: one that was deleted and made again has
	// a newer one.
	epoch  time.Time
	marker wire.RegistryComplete
	// unread is why the marker cannot be read.
	unread string

	feeds       kind[wire.FeedEntry]
	consumers   kind[wire.ConsumerEntry]
	readers     kind[wire.ReaderEntry]
	instruments kind[wire.InstrumentEntry]
	mirrors     kind[wire.MirrorEntry]
	// guests and movers are written by the runs of mirrors: no marker counts them.
	guests kind[wire.GuestEntry]
	movers kind[wire.MoverEntry]
}

// NewBucket returns an empty bucket that was created at epoch.
func NewBucket(epoch time.Time) *Bucket {
	return &Bucket{
		epoch: epoch,
		feeds: kind[wire.FeedEntry]{
			parse: wire.ParseRegistryFeedKey, decode: wire.Decode[wire.FeedEntry],
			head: func(e wire.FeedEntry) (string, int64) { return e.Feed, e.Revision },
		},
		consumers: kind[wire.ConsumerEntry]{
			parse: wire.ParseRegistryConsumerKey, decode: wire.Decode[wire.ConsumerEntry],
			head: func(e wire.ConsumerEntry) (string, int64) { return e.Consumer, e.Revision },
		},
		readers: kind[wire.ReaderEntry]{
			parse: wire.ParseRegistryReaderKey, decode: wire.Decode[wire.ReaderEntry],
			head: func(e wire.ReaderEntry) (string, int64) { return e.Reader, e.Revision },
		},
		instruments: kind[wire.InstrumentEntry]{
			parse: wire.ParseRegistryInstrumentKey, decode: wire.Decode[wire.InstrumentEntry],
			head: func(e wire.InstrumentEntry) (string, int64) { return e.Instrument, e.Revision },
		},
		mirrors: kind[wire.MirrorEntry]{
			parse: wire.ParseRegistryMirrorKey, decode: wire.Decode[wire.MirrorEntry],
			head: func(e wire.MirrorEntry) (string, int64) { return e.Partner, e.Revision },
		},
		guests: kind[wire.GuestEntry]{
			parse: wire.ParseRegistryGuestKey, decode: wire.Decode[wire.GuestEntry],
			head: func(e wire.GuestEntry) (string, int64) { return e.Name(), e.SaidAt.UnixNano() },
		},
		movers: kind[wire.MoverEntry]{
			parse: wire.ParseRegistryMoverKey, decode: wire.Decode[wire.MoverEntry],
			head: func(e wire.MoverEntry) (string, int64) { return e.Partner + "." + e.Kind, 0 },
		},
	}
}

// Take notes one change of the bucket: a key's new value, or that it is gone.
func (b *Bucket) Take(key string, value []byte, put bool) {
	if key == wire.RegistryCompleteKey {
		b.marker, b.unread = wire.RegistryComplete{}, ""
		if put {
			var err error
			if b.marker, err = wire.Decode[wire.RegistryComplete](value); err != nil {
				b.unread = "nothing is removed: " + err.Error()
			}
		}
		return
	}
	_ = b.feeds.take(key, value, put) || b.consumers.take(key, value, put) ||
		b.readers.take(key, value, put) || b.instruments.take(key, value, put) || b.mirrors.take(key, value, put) ||
		b.guests.take(key, value, put) || b.movers.take(key, value, put)
}

// complete says whether the bucket holds all of the revision that its marker names.
func (b *Bucket) complete() bool {
	m := b.marker
	return m.Revision > 0 &&
		b.feeds.complete(m.Feeds, m.Revision) && b.consumers.complete(m.Consumers, m.Revision) &&
		b.readers.complete(m.Readers, m.Revision) && b.instruments.complete(m.Count, m.Revision) && b.mirrors.complete(m.Mirrors, m.Revision)
}

// Resolve returns the snapshot that follows prev once the bucket is as b says.
//
// A complete bucket of a revision at least prev's (or of a newer bucket) is taken
// as it is. Otherwise the registry is on its way: what is new or changed applies
// at once, and nothing is taken away.
func Resolve(prev *Snapshot, b *Bucket) *Snapshot {
	next := newSnapshot()
	next.Revision, next.Epoch = prev.Revision, prev.Epoch
	newer := b.epoch.After(prev.Epoch)
	whole := b.complete() && (b.marker.Revision >= prev.Revision || newer)
	next.Complete = whole
	if whole {
		next.Revision, next.Epoch = b.marker.Revision, b.epoch
	}
	next.hold = b.marker.LegalHold || !whole && prev.hold
	if b.unread != "" {
		next.Problems[wire.RegistryCompleteKey] = b.unread
	}
	b.feeds.resolve(next.Feeds, prev.Feeds, whole, newer, next.Problems)
	b.consumers.resolve(next.Consumers, prev.Consumers, whole, newer, next.Problems)
	b.readers.resolve(next.Readers, prev.Readers, whole, newer, next.Problems)
	b.instruments.resolve(next.Instruments, prev.Instruments, whole, newer, next.Problems)
	b.mirrors.resolve(next.Mirrors, prev.Mirrors, whole, newer, next.Problems)
	b.addGuests(next, prev, whole, newer)
	next.nameAll()
	return next
}

// addGuests adds the instruments of other Sites, and who brings what is of them. The entries of runs that are over are gone:
// what was known of a mover does not stay.
func (b *Bucket) addGuests(next, prev *Snapshot, whole, newer bool) {
	next.guests = map[string]wire.GuestEntry{}
	b.guests.resolve(next.guests, prev.guests, whole, newer, next.Problems)
	for name, e := range next.guests {
		in := e.Entry()
		in.LegalHold = next.hold
		next.Instruments[name] = in
	}
	for _, e := range b.movers.entries {
		if e.problem != "" {
			next.Problems[e.key] = e.problem
			continue
		}
		next.Movers[e.value.Partner] = append(next.Movers[e.value.Partner], e.value.Certificate)
	}
}

// nameAll puts names in the place of wire.AllInstruments. Feeds and mirrors share one list of them; what a mirror pulls has
// names elsewhere.
func (s *Snapshot) nameAll() {
	var all []string
	for name, m := range s.Mirrors {
		if m.Direction != wire.MirrorPush || !slices.Contains(m.Selection.Instruments, wire.AllInstruments) {
			continue
		}
		if all == nil {
			all = s.own()
		}
		m.Selection.Instruments = slices.Clip(all)
		s.Mirrors[name] = m
	}
	for name, f := range s.Feeds {
		i := slices.Index(f.Instruments, wire.AllInstruments)
		if i < 0 {
			continue
		}
		if all == nil {
			all = s.own()
		}
		leaves := slices.Concat(f.Instruments[:i], f.Instruments[i+1:])
		if f.Instruments = slices.Clip(all); len(leaves) > 0 {
			f.Instruments = append(f.Instruments, leaves...)
		}
		s.Feeds[name] = f
	}
}

// own are the names of the Site's own instruments, in order: neither Feeds nor partners are given those of other Sites.
func (s *Snapshot) own() []string {
	var names []string
	for name := range s.Instruments {
		if !wire.IsGuest(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Clip(names)
}

// kind is one kind of entries of a bucket.
type kind[T any] struct {
	parse  func(key string) (name string, ok bool)
	decode func([]byte) (T, error)
	head   func(T) (name string, revision int64)

	entries map[string]entry[T]
}

// entry is what lies under a key: a value, or why that cannot be read.
type entry[T any] struct {
	key     string
	value   T
	problem string
}

// take returns false for a key of another kind.
func (k *kind[T]) take(key string, raw []byte, put bool) bool {
	name, ours := k.parse(key)
	if !ours {
		return false
	}
	if k.entries == nil {
		k.entries = map[string]entry[T]{}
	}
	if !put {
		delete(k.entries, name)
		return true
	}
	e := entry[T]{key: key}
	value, err := k.decode(raw)
	if said, _ := k.head(value); err == nil && said != name {
		err = fmt.Errorf("it names %q: %w", said, wire.ErrMalformed)
	}
	if err != nil {
		e.problem = err.Error()
	} else {
		e.value = value
	}
	k.entries[name] = e
	return true
}

func (k *kind[T]) complete(count int, revision int64) bool {
	if len(k.entries) != count {
		return false
	}
	for _, e := range k.entries {
		if _, r := k.head(e.value); r > revision {
			return false
		}
	}
	return true
}

func (k *kind[T]) resolve(into, prev map[string]T, whole, newer bool, problems map[string]string) {
	if !whole {
		maps.Copy(into, prev)
	}
	for name, e := range k.entries {
		old, known := prev[name]
		if e.problem != "" {
			problems[e.key] = e.problem
			if known {
				into[name] = old
			}
			continue
		}
		_, before := k.head(old)
		if _, after := k.head(e.value); !known || whole || newer || after > before {
			into[name] = e.value
		}
	}
}
