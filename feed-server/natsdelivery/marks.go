// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// A stream holds messages of several Sites, its own and leaves, and loses those of each Site
// separately, the oldest first. A message that holds the stream's front, and with it a durable's
// floor, therefore says nothing about the other Sites. So the first waiting message of each Site
// that a durable selects is marked. As long as it is there, everything of its Site behind it is;
// once it has gone, the messages before the first one left are missing.

// origins are a durable's subjects, by the Site whose messages they select: its own,
// gap records among them, or a leaf.
func origins(info *jetstream.ConsumerInfo) map[string][]string {
	all := map[string][]string{}
	for _, subject := range selected(info) {
		_, rest, _ := strings.Cut(subject, ".")
		site, _, _ := strings.Cut(rest, ".")
		all[site] = append(all[site], subject)
	}
	return all
}

// inParts reports whether a stream may lose some of a durable's messages before others
// that came earlier.
func (w *watch) inParts(s *watched) bool {
	return len(origins(s.info)) > 1 || s.holes || len(w.cursor.Marks[s.name]) > 0
}

// updateMarks checks the marks of a durable, and sets them again. It returns what the consumer has missed
// since they were set, or nil. was is the place known before.
func (w *watch) updateMarks(ctx context.Context, s *watched, before wire.DeliveryPlace) (*missing, error) {
	known, now := w.cursor.Marks[s.name], map[string]uint64{}
	floor := s.info.AckFloor.Stream
	var lost *missing
	for origin, subjects := range origins(s.info) {
		at, gone := known[origin], false
		if at > 0 {
			var err error
			if gone, err = w.hasLeft(ctx, s.name, at); err != nil {
				return nil, err
			}
		}
		switch {
		case at > floor && !gone:
			now[origin] = at
			continue
		case !gone && (outstanding(s.info) == 0 || time.Since(s.none[origin]) < waitingInterval):
			continue // what came since does not leave that soon
		}
		from := max(before.Next, floor+1)
		if gone { // a purge moves the floor, too
			from = at
		}
		if err := w.set(ctx, s, now, origin, subjects, from); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			w.log.Warn("cannot look up the messages that wait in the stream; retrying", "stream", s.name, "error", err)
			return nil, nil // with the marks that were
		}
		if gone {
			lost = mergeMissing(lost, missingUntil(before, at, now[origin]))
		}
	}
	if err := w.passOver(ctx, s, now); err != nil && ctx.Err() != nil {
		return nil, err
	}
	if !maps.Equal(known, now) {
		w.cursor.Marks[s.name], w.dirty = now, true
	}
	return lost, nil
}

// set sets the mark of an origin to the first message from a sequence on.
func (w *watch) set(ctx context.Context, s *watched, marks map[string]uint64, origin string, subjects []string, from uint64) error {
	first, err := w.firstOf(ctx, s, subjects, from)
	switch {
	case err != nil:
		return err
	case first > 0:
		marks[origin] = first
	default:
		delete(marks, origin)
		s.none[origin] = time.Now()
	}
	return nil
}

// passOver moves marks past messages that are acknowledged though the floor is before them: if a
// single message keeps the floor, these are all others that were given.
func (w *watch) passOver(ctx context.Context, s *watched, marks map[string]uint64) error {
	if s.info.NumAckPending != 1 || len(marks) < 2 {
		return nil
	}
	keeps := slices.Min(slices.Collect(maps.Values(marks)))
	for origin, subjects := range origins(s.info) {
		if at := marks[origin]; at > keeps && at <= s.info.Delivered.Stream {
			if err := w.set(ctx, s, marks, origin, subjects, s.info.Delivered.Stream+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// least is the least of a durable's marks; 0 where one is not known.
func (w *watch) least(s *watched) uint64 {
	var least uint64
	for origin := range origins(s.info) {
		at := w.cursor.Marks[s.name][origin]
		if least == 0 || at < least {
			least = at
		}
		if at == 0 {
			return 0
		}
	}
	return least
}

// missingUntil is the gap from the sequence of a message that has gone to the first that is there, 0 if
// none is.
func missingUntil(before wire.DeliveryPlace, from, first uint64) *missing {
	to := before.Last + 1
	if first > 0 {
		to = min(first, to)
	}
	return missingBetween(before, from, to)
}

// missingBetween is the loss from one sequence up to before another; nil if it is empty. It counts no more
// messages than waited.
func missingBetween(before wire.DeliveryPlace, from, to uint64) *missing {
	if from >= to {
		return nil
	}
	return &missing{Epoch: before.Epoch, From: from, To: to - 1, Count: max(1, min(to-from, before.Waiting)), Reason: wire.GapRetention}
}

// mergeMissing is one record of two gaps of a stream.
func mergeMissing(a, b *missing) *missing {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	c := *a
	c.From, c.To = min(a.From, b.From), max(a.To, b.To)
	c.Count = min(a.Count+b.Count, c.To-c.From+1)
	return &c
}

// selected are the subjects of a durable.
func selected(info *jetstream.ConsumerInfo) []string {
	if info.Config.FilterSubject != "" {
		return []string{info.Config.FilterSubject}
	}
	return slices.Clone(info.Config.FilterSubjects)
}

// firstOf returns the sequence of the first message on subjects, from one on; 0 if there is none.
func (w *watch) firstOf(ctx context.Context, s *watched, subjects []string, from uint64) (uint64, error) {
	if err := w.looks.Wait(ctx); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, waitingTimeout)
	defer cancel()
	m, err := firstMessage(ctx, w.cfg.JetStream, s.name, subjects, from)
	if err != nil || m == nil {
		if err != nil {
			err = fmt.Errorf("first message of stream %s from %d on: %w", s.name, from, err)
		}
		return 0, err
	}
	return m.Sequence.Stream, nil
}

// firstMessage returns the metadata of the first message on subjects, from a sequence on; nil if
// there is none.
func firstMessage(ctx context.Context, js jetstream.JetStream, stream string, subjects []string, from uint64) (*jetstream.MsgMetadata, error) {
	c, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		FilterSubjects: subjects, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(1, from),
		AckPolicy: jetstream.AckNonePolicy, HeadersOnly: true, MemoryStorage: true, Replicas: 1, InactiveThreshold: waitingIdle,
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = js.DeleteConsumer(ctx, stream, c.CachedInfo().Name) }()
	if c.CachedInfo().NumPending == 0 {
		return nil, nil
	}
	m, err := c.Next(jetstream.FetchMaxWait(waitingTimeout / 2))
	if err != nil {
		if errors.Is(err, jetstream.ErrNoMessages) {
			return nil, nil // it left meanwhile
		}
		return nil, err
	}
	return m.Metadata()
}
