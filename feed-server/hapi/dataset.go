// SPDX-License-Identifier: Apache-2.0

package hapi

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/decode"
	"github.com/substorm/substorm/internal/wire"
)

// caller is a request, and its time.
type caller struct {
	*endpoint.Request
	now time.Time
}

func (h *Handler) caller(r *http.Request) (*caller, *problem) {
	c := &caller{Request: endpoint.RequestOf(r), now: h.cfg.Now().UTC()}
	if away := c.Ready(); away != nil {
		return nil, failure(codeInternal, away.Detail).withStatus(away.Status).after(endpoint.RetryAway)
	}
	return c, nil
}

// dataset is a channel of an instrument.
type dataset struct {
	id         string
	instrument wire.InstrumentEntry
	channel    wire.ChannelEntry
	decoder    *decode.Decoder
	// generations are what the Instrument said of its data, the oldest first.
	generations []wire.Description
	// open is false if an embargo keeps the newest data from the caller: data observed at horizon
	// or later is then not revealed.
	open    bool
	horizon time.Time
}

// datasetID is what a channel is called.
func datasetID(instrument, channel string) string { return instrument + "/" + channel }

// datasets returns the datasets that the caller may read, by id. A channel that cannot be decoded
// is left out.
func (h *Handler) datasets(c *caller) []*dataset {
	var all []*dataset
	for _, name := range slices.Sorted(maps.Keys(c.Snapshot.Instruments)) {
		entry := c.Snapshot.Instruments[name]
		if c.decide(&entry, time.Time{}) != access.Granted {
			continue
		}
		for i := range entry.Channels {
			if d, err := h.newDataset(c, entry, entry.Channels[i]); err == nil {
				all = append(all, d)
			}
		}
	}
	return all
}

// subject is what requests for info and for data are about.
type subject struct {
	// fields are what the request asks, by name.
	fields  map[string]string
	dataset *dataset
	// chosen are the numbers of the parameters that are asked for; nil: all.
	chosen []int
	span   span
}

// subject reads a request, which may ask more beside what all have.
func (h *Handler) subject(r *http.Request, c *caller, more ...string) (s subject, p *problem) {
	if s.fields, p = fields(r.URL, append([]string{"dataset", "parameters", "resolve_references"}, more...)...); p != nil {
		return s, p
	}
	if s.dataset, p = h.dataset(c, s.fields["dataset"]); p != nil {
		return s, p
	}
	if s.chosen, p = choose(s.fields["parameters"], s.dataset.decoder.Parameters()); p != nil {
		return s, p
	}
	s.span, p = h.span(r.Context(), c, s.dataset)
	return s, p
}

// dataset returns the one that a request names.
func (h *Handler) dataset(c *caller, id string) (*dataset, *problem) {
	instrument, channel, _ := strings.Cut(id, "/")
	entry, known := c.Snapshot.Instruments[instrument]
	i := slices.IndexFunc(entry.Channels, func(e wire.ChannelEntry) bool { return e.Name == channel })
	if !known || i < 0 {
		return nil, failure(codeUnknownDataset, "catalog lists those that there are")
	}
	c.About(instrument)
	switch c.decide(&entry, time.Time{}) {
	case access.Granted:
	case access.NeedsReader:
		return nil, failure(codeUserError, "the dataset is for readers: show a token").withStatus(http.StatusUnauthorized)
	case access.Forbidden:
		return nil, failure(codeUserError, "the dataset is for other readers").withStatus(http.StatusForbidden)
	default:
		return nil, failure(codeUnknownDataset, "catalog lists those that there are")
	}
	d, err := h.newDataset(c, entry, entry.Channels[i])
	if err != nil {
		return nil, failure(codeInternal, "its declaration cannot be read").withCause(err)
	}
	return d, nil
}

func (c *caller) decide(entry *wire.InstrumentEntry, observedAt time.Time) access.Verdict {
	return access.Decide(access.Archive, c.Reader, entry.Instrument, entry.Access, observedAt, c.now)
}

func (h *Handler) newDataset(c *caller, entry wire.InstrumentEntry, channel wire.ChannelEntry) (*dataset, error) {
	d := &dataset{id: datasetID(entry.Instrument, channel.Name), instrument: entry, channel: channel}
	var err error
	if d.decoder, err = h.cache.of(d.id, channel); err != nil {
		return nil, err
	}
	if h.cfg.Generations != nil {
		d.generations = h.cfg.Generations(entry.Instrument)
	}
	d.open = c.decide(&entry, c.now) == access.Granted
	if !d.open && entry.Access != nil {
		// The decision is made above; this only finds the boundary.
		d.horizon = c.now.Add(-entry.Access.Embargo()).Truncate(time.Second)
	}
	if !d.open && c.decide(&entry, d.horizon.Add(-1)) != access.Granted {
		return nil, errors.New("nothing of it may be read")
	}
	return d, nil
}

// delay is how far the time of a sample may be from the record's.
func (d *dataset) delay() time.Duration {
	return time.Duration(d.channel.Time.MaxDelayMillis) * time.Millisecond
}

// holds reports whether a record's payloads are the dataset's.
func (d *dataset) holds(r *wire.Record) bool {
	if r.State != wire.StateCurrent {
		return false
	}
	if d.channel.Datagrams != "" {
		return r.Segment != nil && r.Segment.Channel == d.channel.Datagrams
	}
	return r.Segment == nil && strings.HasSuffix(publishedName(r), d.channel.Suffix)
}

// publishedName is what an object is called to others.
func publishedName(r *wire.Record) string {
	switch {
	case r.Path != "":
		return r.Path
	case r.Name != "":
		return r.Name
	default:
		return r.Key
	}
}

// span is from when (included) to when (excluded) a dataset has data.
type span struct {
	start, stop time.Time
	// sample is a time range that has some samples; both ends are zero if none is known.
	sampleStart, sampleStop time.Time
}

const day = 24 * time.Hour

// span asks the archive. Both ends are ends of days, the last a future one while the instrument
// sends, so that they do not change with every sample.
func (h *Handler) span(ctx context.Context, c *caller, d *dataset) (span, *problem) {
	from, to, ok, err := h.cfg.Archive.Span(ctx, d.instrument.Instrument, d.channel.Datagrams != "")
	if err != nil {
		return span{}, failure(codeUpstream, "the archive does not answer").withCause(err)
	}
	if !ok {
		from, to = c.now, c.now
	}
	// An array of a day's data may begin a precision before what its record says.
	s := span{start: from.Add(-d.delay() - time.Second).Truncate(day), stop: to.Add(d.delay()).Truncate(day).Add(day)}
	if tomorrow := c.now.Truncate(day).Add(day); !d.instrument.Retired && s.stop.Before(tomorrow) {
		s.stop = tomorrow
	}
	if !d.open && d.horizon.Before(s.stop) {
		s.stop = d.horizon
		if !s.start.Before(s.stop) {
			s.start = s.stop.Add(-time.Second)
		}
	}
	if ok && d.channel.Datagrams != "" { // of objects it is not known what times they hold
		s.sample(from, d)
	}
	return s, nil
}

// sample is an hour from the first data, or a hundred samples.
func (s *span) sample(from time.Time, d *dataset) {
	length := time.Hour
	if d.channel.CadenceMillis > 0 {
		length = 100 * time.Duration(d.channel.CadenceMillis) * time.Millisecond
	}
	start := from.Truncate(time.Second)
	if stop := start.Add(length); !start.Before(s.start) && !stop.After(s.stop) {
		s.sampleStart, s.sampleStop = start, stop
	}
}

// decoders keeps what was made of channels.
type decoders struct {
	mu  sync.Mutex
	all map[string]*decode.Decoder
}

// maxDecoders bounds what is kept.
const maxDecoders = 4096

// of returns the decoder of a dataset's channel.
func (c *decoders) of(id string, channel wire.ChannelEntry) (*decode.Decoder, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.all[id]; d != nil && reflect.DeepEqual(d.Entry(), channel) {
		return d, nil
	}
	d, err := decode.New(channel)
	if err != nil {
		return nil, err
	}
	if c.all == nil || len(c.all) >= maxDecoders {
		c.all = map[string]*decode.Decoder{}
	}
	c.all[id] = d
	return d, nil
}
