// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// saveInterval is how often cursors are saved where nothing else asks for it. What
	// was acknowledged since is noted, see places.
	saveInterval = 10 * time.Second
	// finishTimeout bounds the last save.
	finishTimeout = 2 * time.Second
)

// watch is the look at one consumer of mode All.
type watch struct {
	*delivery
	*worker
	consumer string
	lease    *stream.Lease

	cell   *stream.Cell
	cursor wire.DeliveryCursor
	saved  time.Time
	dirty  bool
	// unsaved: a gap was found since.
	unsaved bool
	// streams that its durables are on.
	streams []*watched
}

// watched is one of them.
type watched struct {
	name string
	// gapsOnly: its durable takes gap records and nothing else.
	gapsOnly bool
	info     *jetstream.ConsumerInfo // nil while there is no durable
	waiting  waiting
	// holes: the stream lacks messages behind its first.
	holes bool
	// none is when nothing waited of an origin.
	none map[string]time.Time
	*count
}

// count counts what a consumer acknowledged since a feed server began to work for it:
// what its durable has since, and what durables before that had.
type count struct {
	created       time.Time
	from, is, was uint64
}

// note notes what the durable says.
func (c *count) note(info *jetstream.ConsumerInfo) {
	if !c.created.Equal(info.Created) {
		c.was += c.is - c.from
		if c.from = 0; c.created.IsZero() {
			c.from = info.AckFloor.Consumer
		}
		c.created, c.is = info.Created, c.from
	}
	c.is = max(c.is, info.AckFloor.Consumer)
}

func (c *count) total() uint64 { return c.was + c.is - c.from }

// watch looks after a consumer of mode All.
func (d *delivery) watch(ctx context.Context, by *worker, lease *stream.Lease) error {
	s := by.selection
	w := &watch{delivery: d, worker: by, consumer: s.Consumer.Consumer, lease: lease}
	notices := wire.NoticeStream(d.cfg.Site)
	w.streams = []*watched{{name: notices, gapsOnly: s.Notices != notices}}
	for _, name := range []string{s.Notices, s.Telemetry} {
		if name != "" && !slices.ContainsFunc(w.streams, func(s *watched) bool { return s.name == name }) {
			w.streams = append(w.streams, &watched{name: name})
		}
	}
	for _, s := range w.streams {
		if w.counts[s.name] == nil {
			w.counts[s.name] = &count{}
		}
		s.count, s.none = w.counts[s.name], map[string]time.Time{}
	}
	if err := w.load(ctx); err != nil {
		return err
	}
	defer w.saveLast(ctx)
	tick := time.NewTicker(d.cfg.WatchInterval)
	defer tick.Stop()
	for {
		if err := w.checkDurables(ctx); err != nil {
			return err
		}
		w.note()
		w.measure(time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// load finds what was known of the consumer.
func (w *watch) load(ctx context.Context) error {
	cursors, err := w.cfg.JetStream.KeyValue(ctx, wire.CursorBucket(w.cfg.Site))
	if err != nil {
		return fmt.Errorf("bucket %s: %w", wire.CursorBucket(w.cfg.Site), err)
	}
	w.cell = stream.NewCell(w.cfg.JetStream, cursors, wire.DeliveryCursorKey(w.consumer))
	data, err := w.cell.Load(ctx)
	if err != nil {
		return err
	}
	if data != nil {
		if w.cursor, err = wire.Decode[wire.DeliveryCursor](data); err != nil {
			return fmt.Errorf("cursor %s: %w", wire.DeliveryCursorKey(w.consumer), err)
		}
	}
	if w.cursor.UID != w.selection.Consumer.UID {
		w.cursor = wire.DeliveryCursor{UID: w.selection.Consumer.UID} // another one of its name
	}
	if w.cursor.Places == nil {
		w.cursor.Places = map[string]wire.DeliveryPlace{}
	}
	if w.cursor.Marks == nil {
		w.cursor.Marks = map[string]map[string]uint64{}
	}
	if w.cursor.Missing == nil {
		w.cursor.Missing = map[wire.GapReason]uint64{}
	}
	w.catchUp()
	return nil
}

// checkDurables looks at all durables of the consumer, and publishes what it missed.
func (w *watch) checkDurables(ctx context.Context) error {
	for _, s := range w.streams {
		if err := w.looks.Wait(ctx); err != nil {
			return err
		}
		seen, err := w.sight(ctx, s)
		if err != nil {
			return err
		}
		if s.info == nil {
			continue
		}
		before := w.cursor.Places[s.name]
		place, lost := compareSighting(before, seen)
		if place, lost, err = w.judgeParts(ctx, s, before, place, lost); err != nil {
			return err
		}
		if before != place {
			w.cursor.Places[s.name], w.dirty = place, true
		}
		if s.name == wire.NoticeStream(w.cfg.Site) {
			if err := w.noteTold(ctx, before, place, lost); err != nil {
				return err
			}
		}
		if lost != nil && !s.gapsOnly {
			w.recordGap(s.name, *lost)
		}
	}
	if err := w.tell(ctx); err != nil {
		return err
	}
	if w.dirty && time.Since(w.saved) >= saveInterval {
		return w.save(ctx)
	}
	return nil
}

// judgeParts adds to what was judged of a stream as a whole what its origins' marks
// show.
func (w *watch) judgeParts(ctx context.Context, s *watched, before, place wire.DeliveryPlace, lost *missing) (wire.DeliveryPlace, *missing, error) {
	if before.Epoch != place.Epoch || !before.Created.Equal(place.Created) {
		delete(w.cursor.Marks, s.name) // of another stream or durable
		clear(s.none)
		before = place
	}
	if !w.inParts(s) {
		return place, lost, nil
	}
	if least := w.least(s); least > 0 && lost != nil && lost.Reason == wire.GapRetention {
		lost = missingBetween(before, max(lost.From, least), lost.To+1) // earlier messages were reported, or are not this consumer's
	}
	more, err := w.updateMarks(ctx, s, before)
	if err != nil {
		return place, nil, err
	}
	place.Next, place.Waits = max(place.Next, w.least(s)), false
	return place, mergeMissing(lost, more), nil
}

// sight looks at a durable and, after that, at its stream.
func (w *watch) sight(ctx context.Context, s *watched) (sighting, error) {
	durable, err := w.cfg.JetStream.Consumer(ctx, s.name, w.selection.Consumer.DurableName())
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		if s.info != nil {
			w.log.Warn("the consumer's durable is gone; delivery continues when the operator has recreated it", "stream", s.name)
		}
		s.info = nil
		return sighting{}, nil
	}
	if err != nil {
		return sighting{}, fmt.Errorf("durable %s of %s: %w", w.selection.Consumer.DurableName(), s.name, err)
	}
	info := durable.CachedInfo()
	if !s.created.Equal(info.Created) {
		s.waiting = waiting{}
	}
	s.note(info)
	s.info = info
	seen := sighting{Created: info.Created.UTC(), Floor: info.AckFloor.Stream, Waiting: outstanding(info)}
	place := w.cursor.Places[s.name]
	from := max(place.Next, seen.Floor+1)
	if place.Waits && len(w.cursor.Marks[s.name]) == 0 { // which are looked at otherwise
		if seen.Gone, err = w.hasLeft(ctx, s.name, place.Next); err != nil {
			return sighting{}, err
		}
	}
	if seen.Gone { // looked for at once, and also where a purge moved the floor
		s.waiting, from = waiting{}, place.Next
	}
	seen.Found = s.waiting.first(ctx, w.cfg.JetStream, s.name, info, from)
	epoch, state, err := stream.Epoch(ctx, w.cfg.JetStream, s.name)
	if err != nil {
		return sighting{}, err
	}
	seen.Epoch, seen.First, seen.Last = epoch, state.FirstSeq, state.LastSeq
	s.holes = state.NumDeleted > 0
	seen.Acknowledged, _ = strconv.ParseUint(info.Config.Metadata[wire.ConsumerMetadataAfter], 10, 64) // 0 if it is not stated
	switch info.Config.DeliverPolicy {
	case jetstream.DeliverAllPolicy:
		seen.Start = 1
	case jetstream.DeliverByStartSequencePolicy:
		seen.Start = info.Config.OptStartSeq
	}
	return seen, nil
}

// hasLeft reports whether a message that waited left its stream.
func (w *watch) hasLeft(ctx context.Context, name string, sequence uint64) (bool, error) {
	s, err := w.cfg.JetStream.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("stream %s: %w", name, err)
	}
	if state := s.CachedInfo().State; state.NumDeleted == 0 && state.FirstSeq <= sequence {
		return false, nil
	}
	_, err = s.GetMsg(ctx, sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("message %d of stream %s: %w", sequence, name, err)
	}
	return false, nil
}

// save writes what is known. Errors: stream.ErrConflict where another watches, too.
func (w *watch) save(ctx context.Context) error {
	if err := w.lease.Check(); err != nil {
		return err
	}
	value, err := wire.Encode(w.cursor)
	if err != nil {
		return err
	}
	if err := w.cell.Store(ctx, value); err != nil {
		return err
	}
	w.saved, w.dirty, w.unsaved = time.Now(), false, false
	return nil
}

// saveLast saves the places at the end, so that the next one knows all that was
// acknowledged.
func (w *watch) saveLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	if w.dirty {
		_ = w.save(ctx) // the next one knows what was saved before
	}
}
