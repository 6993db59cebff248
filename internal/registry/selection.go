// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/wire"
)

// Errors of Select.
var (
	ErrNoConsumer = errors.New("no such FeedConsumer")
	ErrNoFeed     = errors.New("no such Feed")
)

// Selection is what a consumer's filter selects of its Feed, for any reader.
type Selection struct {
	Consumer wire.ConsumerEntry
	Feed     wire.FeedEntry
	// Notices and Telemetry are the streams that its messages of each kind lie in;
	// empty: it takes none. They may be one.
	Notices, Telemetry string
	// Site whose Instruments they are, by name or as wire.LeafInstruments.
	Site        string
	Instruments map[string]bool
	// Channels of telemetry; nil: all.
	Channels map[string]bool
}

// Select returns what a consumer selects. Errors: ErrNoConsumer, ErrNoFeed.
func (s *Snapshot) Select(consumer string) (Selection, error) {
	c, ok := s.Consumers[consumer]
	if !ok {
		return Selection{}, fmt.Errorf("%w as %q", ErrNoConsumer, consumer)
	}
	f, ok := s.Feeds[c.Feed]
	if !ok {
		return Selection{}, fmt.Errorf("%w as %q, which FeedConsumer %q names", ErrNoFeed, c.Feed, consumer)
	}
	sel := Selection{Consumer: c, Feed: f, Notices: f.Notices, Telemetry: f.Telemetry, Instruments: map[string]bool{}}
	sel.Site, _ = wire.SiteOfStream(cmp.Or(f.Notices, f.Telemetry))
	if c.NoNotices {
		sel.Notices = ""
	}
	if c.NoTelemetry {
		sel.Telemetry = ""
	}
	for _, name := range f.Instruments {
		if len(c.Instruments) == 0 || slices.Contains(c.Instruments, name) {
			sel.Instruments[name] = true
		}
	}
	sel.Channels = narrow(f.Channels, c.Channels)
	return sel, nil
}

// Reader is the consumer as who asks.
func (sel Selection) Reader() access.Reader {
	return access.Consumer(sel.Consumer.Consumer, sel.Instruments)
}

// Consumer is a FeedConsumer as who asks. One whose Feed there is not selects nothing.
func (s *Snapshot) Consumer(name string) access.Reader {
	sel, err := s.Select(name)
	if err != nil {
		return access.Consumer(name, nil)
	}
	return sel.Reader()
}

// narrow returns what both lists allow; an empty one allows all.
func narrow(a, b []string) map[string]bool {
	if len(a) == 0 {
		a, b = b, a
	}
	if len(a) == 0 {
		return nil
	}
	both := map[string]bool{}
	for _, name := range a {
		if len(b) == 0 || slices.Contains(b, name) {
			both[name] = true
		}
	}
	return both
}

// Decide says whether a reader may have an instrument's live data as a Feed carries it. ObservedAt is as in access.Decide. No reader may
// have an instrument that the registry does not hold (yet). It holds no instruments of a leaf: they are for readers.
func (s *Snapshot) Decide(feed wire.FeedEntry, reader access.Reader, instrument string, observedAt, now time.Time) access.Verdict {
	in, ok := s.Instruments[instrument]
	if _, isLeaf := wire.ParseLeafInstruments(instrument); !ok && !isLeaf {
		return access.Hidden
	}
	entry := in.Access.InForce()
	entry.Live = access.Narrower(entry.Live, feed.Live)
	return access.Decide(access.Live, reader, instrument, &entry, observedAt, now)
}
