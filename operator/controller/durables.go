// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/feeds"
	"github.com/substorm/substorm/operator/plan/finding"
)

// keepDurable makes or changes one durable, and notes how far it has come.
func (b *busKeeper) keepDurable(ctx context.Context, d bus.Durable) error {
	consumer, _ := wire.ParseConsumerDurable(d.Name)
	info, err := b.changeAsPlanned(d, func(d bus.Durable) (*jetstream.ConsumerInfo, error) { return b.ensureDurable(ctx, consumer, d) })
	if problem, refused := refusedBy(err); refused {
		b.noteWorst(consumer, feeds.StreamRefused(fmt.Sprintf("durable %s of stream %s", d.Name, d.Stream), problem))
		return nil
	}
	if err != nil || info == nil {
		return err
	}
	b.noteWorst(consumer, finding.Finding{Status: "True", Reason: v1alpha1.ReasonReady, Message: "its durables stand"})
	if info.AckFloor.Stream == 0 {
		return nil
	}
	epoch, err := b.epoch(ctx, d.Stream)
	if err != nil {
		return err
	}
	b.position(d, wire.ResumeToken{Epoch: epoch, Sequence: info.AckFloor.Stream}.String())
	return nil
}

// position notes how far a consumer has come in a durable's stream.
func (b *busKeeper) position(d bus.Durable, token string) {
	consumer, _ := wire.ParseConsumerDurable(d.Name)
	if _, known := b.found.positions[consumer]; !known {
		b.found.positions[consumer] = wire.PositionCursor{UID: d.UID, Streams: map[string]string{}}
	}
	b.found.positions[consumer].Streams[d.Stream] = token
}

// noteWorst keeps the worst finding for a consumer.
func (b *busKeeper) noteWorst(consumer string, f finding.Finding) {
	if was, known := b.found.durables[consumer]; !known || was.OK() {
		b.found.durables[consumer] = f
	}
}

// epoch returns the epoch of the current stream.
func (b *busKeeper) epoch(ctx context.Context, stream string) (string, error) {
	if epoch, known := b.epochs[stream]; known {
		return epoch, nil
	}
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return "", err
	}
	b.epochs[stream] = wire.StreamEpoch(s.CachedInfo().Created)
	return b.epochs[stream], nil
}

func (b *busKeeper) ensureDurable(ctx context.Context, consumer string, d bus.Durable) (*jetstream.ConsumerInfo, error) {
	existing, err := b.js.Consumer(ctx, d.Stream, d.Name)
	if err == nil && existing.CachedInfo().Config.Metadata[wire.ConsumerMetadataUID] != d.UID {
		// The durable belongs to a FeedConsumer that had the name before: the new one starts over.
		if err := b.js.DeleteConsumer(ctx, d.Stream, d.Name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return nil, err
		}
		return b.makeDurable(ctx, d)
	}
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return b.replaceDurable(ctx, consumer, d)
	}
	if err != nil {
		return nil, err
	}
	info, is := existing.CachedInfo(), existing.CachedInfo().Config
	if !sameDurable(is, d) {
		info, err = b.guardWidening(ctx, d, filters(is), func() (*jetstream.ConsumerInfo, error) {
			changed, err := b.js.UpdateConsumer(ctx, d.Stream, durableConfig(is, d))
			if err != nil {
				return nil, err
			}
			b.log.Info("changed a durable", "stream", d.Stream, "durable", d.Name)
			return changed.CachedInfo(), nil
		})
	}
	if err == nil && existing.CachedInfo().Paused { // it was withheld, and delivers only what is planned now
		_, err = b.js.ResumeConsumer(ctx, d.Stream, d.Name)
	}
	return info, err
}

// replaceDurable creates a durable that continues from the position of the consumer's durables of earlier credentials, and removes those.
func (b *busKeeper) replaceDurable(ctx context.Context, consumer string, d bus.Durable) (*jetstream.ConsumerInfo, error) {
	s, err := b.js.Stream(ctx, d.Stream)
	if err != nil {
		return nil, err
	}
	epoch := wire.StreamEpoch(s.CachedInfo().Created)
	var earlier []string
	seen := []wire.PositionCursor{b.facts.positionOf(consumer)}
	names := s.ConsumerNames(ctx)
	for name := range names.Name() {
		if of, ok := wire.ParseConsumerDurable(name); !ok || of != consumer {
			continue
		}
		c, err := s.Consumer(ctx, name)
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		earlier = append(earlier, name)
		info := c.CachedInfo()
		seen = append(seen, wire.PositionCursor{UID: info.Config.Metadata[wire.ConsumerMetadataUID],
			Streams: map[string]string{d.Stream: wire.ResumeToken{Epoch: epoch, Sequence: info.AckFloor.Stream}.String()}})
	}
	if err := names.Err(); err != nil {
		return nil, err
	}
	made, err := b.makeDurable(ctx, d, seen...)
	if err != nil {
		return nil, err
	}
	for _, name := range earlier {
		if err := s.DeleteConsumer(ctx, name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return nil, err
		}
		b.log.Info("removed a durable that earlier credentials can open", "stream", d.Stream, "durable", name)
	}
	return made, nil
}

// makeDurable creates a durable that continues behind the newest known position in this very stream, from seen or from the stored
// positions; it begins at the stream's beginning if no position is known.
func (b *busKeeper) makeDurable(ctx context.Context, d bus.Durable, seen ...wire.PositionCursor) (*jetstream.ConsumerInfo, error) {
	kept, err := b.keptPosition(d)
	if err != nil {
		return nil, err
	}
	epoch, err := b.epoch(ctx, d.Stream)
	if err != nil {
		return nil, err
	}
	cfg := durableConfig(jetstream.ConsumerConfig{Name: d.Name, Durable: d.Name, AckPolicy: jetstream.AckExplicitPolicy,
		DeliverPolicy: jetstream.DeliverAllPolicy}, d)
	after := bus.GoesOnAfter(d, epoch, append(seen, kept)...)
	if after > 0 {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, after+1
		cfg.Metadata[wire.ConsumerMetadataAfter] = strconv.FormatUint(after, 10)
	}
	return b.guardWidening(ctx, d, nil, func() (*jetstream.ConsumerInfo, error) {
		made, err := b.js.CreateConsumer(ctx, d.Stream, cfg)
		if err != nil {
			return nil, err
		}
		b.log.Info("made a durable", "stream", d.Stream, "durable", d.Name, "after", after)
		return made.CachedInfo(), nil
	})
}

// filters returns the subjects that a durable delivers.
func filters(is jetstream.ConsumerConfig) []string {
	if is.FilterSubject != "" {
		return []string{is.FilterSubject}
	}
	return is.FilterSubjects
}

// maxPull is how long a request for messages may wait. After two minutes, servers forget the route of the answers to a request from another
// account, and would lose later deliveries.
const maxPull = 90 * time.Second

func durableConfig(cfg jetstream.ConsumerConfig, d bus.Durable) jetstream.ConsumerConfig {
	cfg.Description = d.Description
	cfg.FilterSubject, cfg.FilterSubjects = "", d.Subjects
	cfg.MaxAckPending = d.Window
	cfg.MaxRequestExpires = maxPull
	cfg.Metadata = maps.Clone(cfg.Metadata)
	if cfg.Metadata == nil {
		cfg.Metadata = map[string]string{}
	}
	cfg.Metadata[wire.ConsumerMetadataUID] = d.UID
	return cfg
}

func sameDurable(is jetstream.ConsumerConfig, d bus.Durable) bool {
	return is.Description == d.Description && is.MaxAckPending == d.Window && is.MaxRequestExpires == maxPull &&
		slices.Equal(slices.Sorted(slices.Values(filters(is))), slices.Sorted(slices.Values(d.Subjects)))
}

// sweep removes durables and consumers' streams that belong to no consumer, or to one that no longer needs them, and the streams of deleted
// Feeds that asked for removal. From consumers' streams it also removes the messages that the consumers may no longer read.
func (b *busKeeper) sweep(ctx context.Context, p bus.Plan) error {
	var errs []error
	names := b.js.StreamNames(ctx)
	for name := range names.Name() {
		if b.silent[name] {
			continue
		}
		call, cancel := context.WithTimeout(ctx, objectTimeout)
		err := b.sweepStream(call, name, p)
		cancel()
		if err != nil {
			errs = append(errs, fmt.Errorf("stream %s: %w", name, err))
			if feed, ofFeed := wire.ParseFeedStream(b.want.marker.Code, name); ofFeed && !slices.Contains(p.Feeds, feed) {
				b.swept.doomed = append(b.swept.doomed, name)
			}
		}
	}
	b.swept.whole = names.Err() == nil && ctx.Err() == nil
	return errors.Join(append(errs, names.Err())...)
}

// removeFeedStreams removes the streams of Feeds that are being deleted, and notes the result for each.
func (b *busKeeper) removeFeedStreams(ctx context.Context, names []string) error {
	var errs []error
	b.swept.leaving = map[string]finding.Finding{}
	for _, feed := range names {
		name := wire.FeedStream(b.want.marker.Code, feed)
		call, cancel := context.WithTimeout(ctx, objectTimeout)
		err := b.removeStream(call, name, false)
		cancel()
		f := finding.Finding{Status: "True", Reason: v1alpha1.ReasonReady, Message: "its stream is gone"}
		if problem, refused := refusedBy(err); refused {
			f = feeds.StreamRefused("the removal of stream "+name, problem)
		} else if err != nil {
			f = feeds.StreamSilent("stream "+name, err)
			errs = append(errs, fmt.Errorf("stream %s: %w", name, err))
		}
		b.swept.leaving[feed] = f
	}
	return errors.Join(errs...)
}

func (b *busKeeper) sweepStream(ctx context.Context, name string, p bus.Plan) error {
	code := b.want.marker.Code
	feed, ofFeed := wire.ParseFeedStream(code, name)
	consumer, ofConsumer := wire.ParseConsumerStream(code, name)
	var err error
	switch {
	case ofConsumer && unneeded(&p, consumer) && !slices.ContainsFunc(p.Streams, func(s bus.OwnStream) bool { return s.Name == name }):
		return b.removeStream(ctx, name, false)
	case ofConsumer:
		if instruments, known := p.MayRead[consumer]; known {
			err = b.purgeClosed(ctx, name, consumer, instruments)
		}
	case ofFeed && !slices.Contains(p.Feeds, feed):
		err = b.removeStream(ctx, name, true)
	}
	if err == nil && (ofFeed || ofConsumer && (b.several[name] || slices.Contains(p.Withheld, consumer)) || name == wire.ObservationStream(code) || name == wire.NoticeStream(code)) {
		err = b.sweepDurables(ctx, name)
	}
	return err
}

// unneeded: a consumer that is gone, or whose needs are known.
func unneeded(p *bus.Plan, consumer string) bool {
	return !slices.Contains(p.Consumers, consumer) || slices.Contains(p.Settled, consumer)
}

// purgeClosed removes from a consumer's stream the messages that the consumer may not read any more. A feed server may not know that yet:
// the stream is checked whenever new messages arrive.
func (b *busKeeper) purgeClosed(ctx context.Context, name, consumer string, instruments []string) error {
	s, err := b.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	is := s.CachedInfo()
	if ours, _, err := b.ours(is); err != nil || !ours {
		return err
	}
	state := fmt.Sprint(wire.StreamEpoch(is.Created), is.State.LastSeq, instruments)
	if b.looked.closed[name] == state {
		return nil
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(wire.LiveSubjects(b.want.marker.Code, consumer)))
	if err != nil {
		return err
	}
	for _, subject := range bus.Closed(b.want.marker.Code, consumer, sortedKeys(info.State.Subjects), instruments) {
		if err := s.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
			return fmt.Errorf("purge %s: %w", subject, err)
		}
		b.log.Info("purged messages that the consumer may no longer read", "stream", name, "subject", subject)
	}
	if b.looked.closed == nil {
		b.looked.closed = map[string]string{}
	}
	b.looked.closed[name] = state
	return nil
}

// removeStream removes a stream that is this Site's; onlyAsked: where its metadata says so.
func (b *busKeeper) removeStream(ctx context.Context, name string, onlyAsked bool) error {
	s, err := b.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	ours, _, err := b.ours(s.CachedInfo())
	if err != nil || !ours {
		return err
	}
	if onlyAsked && s.CachedInfo().Config.Metadata[wire.StreamMetadataDeletion] != string(v1alpha1.DeletionDelete) {
		return nil
	}
	if err := b.js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	b.log.Info("removed a stream that is needed no longer", "stream", name)
	return nil
}

func (b *busKeeper) sweepDurables(ctx context.Context, stream string) error {
	s, names, err := b.durablesOf(ctx, stream)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := b.sweepDurable(ctx, s, name); err != nil {
			return err
		}
	}
	return nil
}

// sweepDurable looks after a durable that the plan in force does not have.
func (b *busKeeper) sweepDurable(ctx context.Context, s jetstream.Stream, name string) error {
	b.changes.Lock()
	defer b.changes.Unlock()
	p := b.facts.busPlan()
	consumer, _ := wire.ParseConsumerDurable(name)
	if _, planned := p.Durable(s.CachedInfo().Config.Name, name); planned {
		return nil
	}
	if next, planned := p.Succeeds(s.CachedInfo().Config.Name, consumer); planned {
		if _, err := s.Consumer(ctx, next.Name); errors.Is(err, jetstream.ErrConsumerNotFound) {
			return nil // the plan is newer than this look: the next one makes it, from where this one is
		} else if err != nil {
			return err
		}
	}
	if unneeded(p, consumer) {
		return b.removeDurable(ctx, s, name)
	}
	if slices.Contains(p.Withheld, consumer) {
		if err := b.withhold(ctx, s, name, "its consumer has no Secret, or no Feed"); err != nil {
			return err
		}
	}
	return b.narrowTo(ctx, s, name, p.MayRead[consumer])
}

func (b *busKeeper) removeDurable(ctx context.Context, s jetstream.Stream, name string) error {
	if err := s.DeleteConsumer(ctx, name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return err
	}
	b.log.Info("removed a durable that is needed no longer", "stream", s.CachedInfo().Config.Name, "durable", name)
	return nil
}

// withheldYears is longer than any wait for a Secret.
const withheldYears = 10

// withhold has a durable deliver nothing, even to clients with earlier credentials. It keeps its position.
func (b *busKeeper) withhold(ctx context.Context, s jetstream.Stream, name, why string) error {
	c, err := s.Consumer(ctx, name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || err == nil && c.CachedInfo().Paused {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := s.PauseConsumer(ctx, name, b.now().AddDate(withheldYears, 0, 0)); err != nil {
		return err
	}
	b.log.Warn("paused a durable; it delivers nothing for now and keeps its position", "stream", s.CachedInfo().Config.Name, "durable", name, "why", why)
	return nil
}

// narrowTo removes from a durable that otherwise stays as it is the subjects that its consumer may no longer read.
func (b *busKeeper) narrowTo(ctx context.Context, s jetstream.Stream, name string, instruments []string) error {
	c, err := s.Consumer(ctx, name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	is := c.CachedInfo().Config
	left := bus.Narrow(b.want.marker.Code, filters(is), instruments)
	if slices.Equal(left, filters(is)) {
		return nil
	}
	is.FilterSubject, is.FilterSubjects = "", left
	if _, err := s.UpdateConsumer(ctx, is); err != nil {
		return b.withholdInstead(ctx, s, name, err)
	}
	b.log.Info("narrowed a durable to what its consumer may still read", "stream", s.CachedInfo().Config.Name, "durable", name)
	return nil
}
