// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

const (
	// latestTimeout bounds how long Latest looks.
	latestTimeout = 10 * time.Second
	// latestDays is how many days it looks at for an object of a media type.
	latestDays = 32
	// maxTypes are remembered.
	maxTypes = 64
)

// newest is what is known of an instrument's newest objects; the catalog's mutex
// guards it.
type newest struct {
	// of are the newest objects by media type, with "" for any type; nil if no object exists. A media type that is absent was not looked
	// up, and then heard has the newest of the notices since.
	of, heard map[string]*wire.Record
	// typed: all of latestDays were looked at, and of holds what there is of any type.
	typed bool
	// types are the media types of the newest days, and those in notices since; nil before the first lookup.
	types map[string]struct{}
	// generation counts what made a look worthless that is under way.
	generation int
	readers    map[*reader]struct{}
}

// reader is a subscriber that Subscribe returned.
type reader struct{ records chan wire.Record }

func newer(a, b *wire.Record) bool {
	return b == nil || cmp.Or(a.When().Compare(b.When()), older(a, b)) > 0
}

// mayBeLatest says whether an object may be an instrument's latest: segments are not objects that a sender sent.
func mayBeLatest(r *wire.Record, mediaType string) bool {
	if r.State != wire.StateCurrent || mediaType != "" && r.MediaType != mediaType {
		return false
	}
	return mediaType != "" || r.Segment == nil
}

// Latest returns an instrument's newest object of a media type, or of any type if that is empty (segments excluded): newest by
// observation time, else by receipt, so that an object that arrives late replaces nothing newer. It is false if there is no such object,
// or the archive cannot be read.
func (c *Catalog) Latest(instrument, mediaType string) (wire.Record, bool) {
	r, err := c.latest(instrument, mediaType)
	if err != nil {
		c.cfg.Log.Warn("cannot determine the latest object", "instrument", instrument, "mediaType", mediaType, "error", err)
	}
	if r == nil {
		return wire.Record{}, false
	}
	return *r, true
}

func (c *Catalog) latest(instrument, mediaType string) (*wire.Record, error) {
	c.mu.Lock()
	ctx := c.started
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, latestTimeout)
	defer cancel()
	if err := c.await(ctx); err != nil {
		return nil, err
	}
	var r *wire.Record
	var known bool
	n, generation := c.peek(instrument, func(n *newest) {
		r, known = n.of[mediaType]
		known = known || n.typed && mediaType != ""
	})
	if n == nil || known {
		return r, nil
	}
	all, whole, err := c.lookForNewest(ctx, instrument, mediaType)
	if err != nil {
		return nil, err
	}
	r = all[mediaType]
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.generation != generation {
		return r, nil
	}
	if !whole {
		return n.know(mediaType, r), nil
	}
	for mediaType, r := range all {
		n.know(mediaType, r)
	}
	n.typed = true
	return n.know(mediaType, r), nil
}

// know takes the newest that was found of a media type, or nil, and returns it, or what
// came meanwhile. The mutex is held.
func (n *newest) know(mediaType string, r *wire.Record) *wire.Record {
	if h := n.heard[mediaType]; h != nil && newer(h, r) {
		r = h
	}
	if r != nil || mediaType == "" || len(n.of) < maxTypes {
		n.of[mediaType] = r
		delete(n.heard, mediaType)
	}
	return r
}

// peek reads what is known of an instrument's newest objects, and returns its generation;
// nil where the archive holds nothing of it.
func (c *Catalog) peek(instrument string, read func(*newest)) (n *newest, generation int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.holds(instrument) {
		return nil, 0
	}
	n = c.newestOf(instrument)
	read(n)
	return n, n.generation
}

// holds says whether anything is known of an instrument. The mutex is held.
func (c *Catalog) holds(instrument string) bool {
	_, listed := c.index.entries[instrument]
	return listed || len(c.overlay.days[instrument]) > 0
}

// newestOf is called with the mutex held.
func (c *Catalog) newestOf(instrument string) *newest {
	n := c.newest[instrument]
	if n == nil {
		n = &newest{of: make(map[string]*wire.Record), heard: make(map[string]*wire.Record), readers: make(map[*reader]struct{})}
		c.newest[instrument] = n
	}
	return n
}

// lookForNewest reads the days that may hold the newest of a media type, the likeliest
// first. It returns what it found of any type; whole says that this is the newest of
// each, and not only of that which was asked for.
func (c *Catalog) lookForNewest(ctx context.Context, instrument, mediaType string) (best map[string]*wire.Record, whole bool, err error) {
	s, err := c.readSnapshot(ctx, instrument)
	if err != nil {
		return nil, false, err
	}
	best = make(map[string]*wire.Record)
	for i, sum := range s.newestFirst() {
		if is := best[mediaType]; is != nil && latestIn(sum).Before(is.When()) {
			return best, false, nil
		}
		if i == latestDays && mediaType != "" {
			break
		}
		d, err := c.day(ctx, s, sum)
		if err != nil {
			return nil, false, err
		}
		for _, r := range d.Records {
			for _, of := range []string{"", r.MediaType} {
				if _, known := best[of]; (known || len(best) < maxTypes || of == mediaType) && mayBeLatest(r, of) && newer(r, best[of]) {
					best[of] = r
				}
			}
		}
	}
	return best, mediaType != "", nil
}

// newestFirst are the days that may hold anything.
func (s snapshot) newestFirst() []wire.RootDay {
	all := s.candidates(func(d wire.RootDay) bool { return d.Entries > 0 })
	slices.SortStableFunc(all, func(a, b wire.RootDay) int { return latestIn(b).Compare(latestIn(a)) })
	return all
}

// latestIn is a time before which all of a day is that When says.
func latestIn(d wire.RootDay) time.Time {
	start, err := d.Day.Start()
	if err != nil {
		return time.Time{}
	}
	return start.AddDate(0, 0, 1)
}

// hearNewest takes a fresh notice. The mutex is held.
func (c *Catalog) hearNewest(n wire.Notice) {
	known := c.newest[n.Instrument]
	if known == nil {
		return
	}
	r := n.Record
	if r.State == wire.StateCurrent && r.RestoredAt != nil { // it may be the newest again
		known.forget()
		c.lookAgain(n.Instrument, known)
		return
	}
	if r.State != wire.StateCurrent {
		for _, newest := range []map[string]*wire.Record{known.of, known.heard} {
			for mediaType, before := range newest {
				if before != nil && before.ID == r.ID {
					delete(newest, mediaType) // to be looked for again
					c.lookAgain(n.Instrument, known)
				}
			}
		}
		known.generation++
		known.typed = false
		return
	}
	if known.types != nil && len(known.types) < maxTypes && mayBeLatest(&r, "") && r.MediaType != "" {
		known.types[r.MediaType] = struct{}{}
	}
	for _, mediaType := range []string{"", r.MediaType} {
		newest := known.of
		_, looked := newest[mediaType]
		if !looked && (!known.typed || mediaType == "") {
			newest = known.heard
		}
		if _, known := newest[mediaType]; !known && len(newest) >= maxTypes || !mayBeLatest(&r, mediaType) || !newer(&r, newest[mediaType]) {
			continue
		}
		newest[mediaType] = &r
		if mediaType == "" && looked {
			for reader := range known.readers {
				reader.tell(r)
			}
		}
	}
}

// tell replaces a record that the reader has not received yet. The caller holds the mutex, so there is no other sender.
func (r *reader) tell(record wire.Record) {
	select {
	case <-r.records:
	default:
	}
	r.records <- record
}

// Subscribe returns a channel on which an instrument's newest object comes whenever there
// is another, and that which is the newest now. A slow reader misses those in between.
// Cancel ends it, and closes the channel.
func (c *Catalog) Subscribe(instrument string) (records <-chan wire.Record, cancel func()) {
	now, found := c.Latest(instrument, "") // from here on notices are compared with it
	r := &reader{make(chan wire.Record, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.newestOf(instrument)
	if latest := n.of[""]; latest != nil {
		now, found = *latest, true
	}
	if found {
		r.records <- now
	}
	n.readers[r] = struct{}{}
	if _, known := n.of[""]; !known {
		c.lookAgain(instrument, n)
	}
	return r.records, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if _, still := n.readers[r]; still {
			delete(n.readers, r)
			close(r.records)
		}
	}
}
