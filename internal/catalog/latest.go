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
	// maxTypes of which there is no object are remembered.
	maxTypes = 64
)

// newest is what is known of an instrument's newest objects; the catalog's mutex
// guards it.
type newest struct {
	// of are the newest objects by media type, "" being that of any; nil where there
	// is none. What is not there was not looked for, and then heard are the newest of
	// the notices since.
	of, heard map[string]*wire.Record
	// generation counts what made a look worthless that is under way.
	generation int
	readers    map[*reader]struct{}
}

// reader is one that Subscribe told.
type reader struct{ records chan wire.Record }

// When is the time by which an object is newer than another: the end of its
// observation, else its receipt. Nothing is observed after it was received: where a
// clock says so, the receipt counts.
func When(r *wire.Record) time.Time {
	at := r.ReceivedAt
	for _, observed := range []*time.Time{r.ObservedTo, r.ObservedFrom} {
		if observed != nil && observed.Before(at) {
			return *observed
		} else if observed != nil {
			return at
		}
	}
	return at
}

func newer(a, b *wire.Record) bool {
	return b == nil || cmp.Or(When(a).Compare(When(b)), older(a, b)) > 0
}

// shows says whether an object may be an instrument's latest: segments are not
// objects that somebody sent.
func shows(r *wire.Record, mediaType string) bool {
	if r.State != wire.StateCurrent || mediaType != "" && r.MediaType != mediaType {
		return false
	}
	return mediaType != "" || r.Segment == nil
}

// Latest returns an instrument's newest object of a media type, or of any where that
// is empty (segments apart): newest by observation time, else by receipt, so that
// what comes late replaces nothing newer. It is false where there is none, or the
// archive cannot be read.
func (c *Catalog) Latest(instrument, mediaType string) (wire.Record, bool) {
	r, err := c.latest(instrument, mediaType)
	if err != nil {
		c.cfg.Log.Warn("the latest object is not known", "instrument", instrument, "mediaType", mediaType, "error", err)
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
	c.mu.Lock()
	if !c.holds(instrument) {
		c.mu.Unlock()
		return nil, nil
	}
	n := c.newestOf(instrument)
	r, known := n.of[mediaType]
	generation := n.generation
	c.mu.Unlock()
	if known {
		return r, nil
	}
	r, err := c.lookForNewest(ctx, instrument, mediaType)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.generation != generation {
		return r, nil
	}
	if h := n.heard[mediaType]; h != nil && newer(h, r) {
		r = h // it came meanwhile
	}
	if r != nil || len(n.of) < maxTypes {
		n.of[mediaType] = r
		delete(n.heard, mediaType)
	}
	return r, nil
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

// lookForNewest reads the days that may hold it, the likeliest first.
func (c *Catalog) lookForNewest(ctx context.Context, instrument, mediaType string) (*wire.Record, error) {
	s, err := c.known(ctx, instrument)
	if err != nil {
		return nil, err
	}
	all := s.candidates(func(d wire.RootDay) bool { return d.Entries > 0 })
	slices.SortStableFunc(all, func(a, b wire.RootDay) int { return latestIn(b).Compare(latestIn(a)) })
	var best *wire.Record
	for i, sum := range all {
		if i == latestDays && mediaType != "" || best != nil && latestIn(sum).Before(When(best)) {
			break
		}
		d, err := c.day(ctx, s, sum)
		if err != nil {
			return nil, err
		}
		for _, r := range d.Records {
			if shows(r, mediaType) && newer(r, best) {
				best = r
			}
		}
	}
	return best, nil
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
	if r.RestoredAt != nil { // it may be the newest again
		clear(known.of)
		clear(known.heard)
		known.generation++
		return
	}
	if r.State != wire.StateCurrent {
		for _, newest := range []map[string]*wire.Record{known.of, known.heard} {
			for mediaType, was := range newest {
				if was != nil && was.ID == r.ID {
					delete(newest, mediaType) // to be looked for again
				}
			}
		}
		known.generation++
		return
	}
	for _, mediaType := range []string{"", r.MediaType} {
		newest := known.of
		if _, looked := newest[mediaType]; !looked {
			newest = known.heard
		}
		if _, known := newest[mediaType]; !known && len(newest) >= maxTypes || !shows(&r, mediaType) || !newer(&r, newest[mediaType]) {
			continue
		}
		newest[mediaType] = &r
		if mediaType == "" {
			for reader := range known.readers {
				reader.tell(r)
			}
		}
	}
}

// tell replaces what the reader did not take. The mutex is held, so nobody else does.
func (r *reader) tell(record wire.Record) {
	select {
	case <-r.records:
	default:
	}
	r.records <- record
}

// Subscribe returns a channel on which an instrument's newest object comes whenever
// there is another, and that which is the newest now. Who is slow misses those in
// between. Cancel ends it, and closes the channel.
func (c *Catalog) Subscribe(instrument string) (records <-chan wire.Record, cancel func()) {
	now, found := c.Latest(instrument, "") // from here on notices are compared with it
	r := &reader{make(chan wire.Record, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.newestOf(instrument)
	if is := n.of[""]; is != nil {
		now, found = *is, true
	}
	if found {
		r.records <- now
	}
	n.readers[r] = struct{}{}
	return r.records, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if _, still := n.readers[r]; still {
			delete(n.readers, r)
			close(r.records)
		}
	}
}
