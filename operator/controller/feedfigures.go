// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/feeds"
)

const (
	// countWait is how long a message that is known to be there is waited for.
	countWait = 2 * time.Second
	// countKept is how long the server keeps a consumer that counted.
	countKept = 10 * time.Second
)

// countFeeds counts the messages of each Feed in the streams. If a Feed cannot be counted, its last known figures stay.
func (l *link) countFeeds(ctx context.Context, js jetstream.JetStream, p bus.Plan) error {
	var errs []error
	all, was := map[string]feeds.FeedFigures{}, l.facts.figuresOf()
	for feed, selections := range p.Selections {
		figures, err := l.countFeed(ctx, js, selections)
		if err != nil {
			errs = append(errs, fmt.Errorf("count Feed %s: %w", feed, err))
			var known bool
			if figures, known = was[feed]; !known {
				continue
			}
		}
		all[feed] = figures
	}
	l.facts.setFigures(all)
	for feed := range all {
		l.feedFound(feed)
	}
	return errors.Join(errs...)
}

func (l *link) countFeed(ctx context.Context, js jetstream.JetStream, selections []bus.FeedSelection) (sum feeds.FeedFigures, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*objectTimeout)
	defer cancel()
	for _, s := range selections {
		if l.looked.silent[s.Stream] {
			return sum, fmt.Errorf("stream %s: %w", s.Stream, errSilent)
		}
		figures, err := countStream(ctx, js, s, l.now())
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return sum, fmt.Errorf("stream %s: %w", s.Stream, err)
		}
		addFigures(&sum, figures)
	}
	return sum, nil
}

func addFigures(sum *feeds.FeedFigures, f feeds.FeedFigures) {
	sum.Messages += f.Messages
	sum.PerMinute += f.PerMinute
	if f.Bytes != nil {
		sum.Bytes = f.Bytes
	}
	if f.EstimatedBytes != nil {
		all := *f.EstimatedBytes
		if sum.EstimatedBytes != nil {
			all += *sum.EstimatedBytes
		}
		sum.EstimatedBytes = &all
	}
	if f.First != nil && (sum.First == nil || f.First.Time.Before(&sum.First.Time)) {
		sum.First = f.First
	}
	if f.Last != nil && (sum.Last == nil || sum.Last.Time.Before(&f.Last.Time)) {
		sum.Last = f.Last
	}
}

// countStream counts the messages of a selection in a stream. JetStream counts for us: a consumer with these subjects reports how many
// messages it has before it.
func countStream(ctx context.Context, js jetstream.JetStream, s bus.FeedSelection, now time.Time) (feeds.FeedFigures, error) {
	stream, err := js.Stream(ctx, s.Stream)
	if err != nil {
		return feeds.FeedFigures{}, err
	}
	var f feeds.FeedFigures
	if s.Whole {
		state := stream.CachedInfo().State
		f.Bytes = new(int64(state.Bytes))
	} else {
		f.EstimatedBytes = new(int64)
	}
	if len(s.Subjects) == 0 {
		return f, nil
	}
	cfg := jetstream.ConsumerConfig{FilterSubjects: s.Subjects, AckPolicy: jetstream.AckNonePolicy, HeadersOnly: true,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: countKept}
	var sizes sample
	if f.Messages, f.First, err = countPending(ctx, stream, cfg, &sizes); err != nil || f.Messages == 0 {
		return f, err
	}
	cfg.DeliverPolicy = jetstream.DeliverLastPolicy
	if _, f.Last, err = countPending(ctx, stream, cfg, nil); err != nil {
		return f, err
	}
	since := now.Add(-time.Minute)
	cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &since
	if f.PerMinute, _, err = countPending(ctx, stream, cfg, &sizes); err != nil {
		return f, err
	}
	if f.EstimatedBytes != nil {
		*f.EstimatedBytes = sizes.of(f.Messages)
	}
	return f, nil
}

// sampled messages at most are looked at for the sizes of all.
const sampled = 50

// sample is of messages' sizes.
type sample struct{ messages, bytes int64 }

// of returns how many bytes so many messages of this size have.
func (s sample) of(messages int64) int64 {
	if s.messages == 0 {
		return 0
	}
	return int64(float64(s.bytes) / float64(s.messages) * float64(messages))
}

// countPending returns how many messages a consumer has before it, and the first of them. The sizes of the first few are added to sizes, unless it
// is nil.
func countPending(ctx context.Context, stream jetstream.Stream, cfg jetstream.ConsumerConfig, sizes *sample) (int64, *v1alpha1.FeedPosition, error) {
	consumer, err := stream.CreateConsumer(ctx, cfg)
	if err != nil {
		return 0, nil, err
	}
	info := consumer.CachedInfo()
	defer func() { _ = stream.DeleteConsumer(ctx, info.Name) }() // the server forgets it anyway
	pending := int64(info.NumPending)
	if pending == 0 {
		return 0, nil, nil
	}
	most := 1
	if sizes != nil {
		most = int(min(pending, sampled))
	}
	batch, err := consumer.Fetch(most, jetstream.FetchMaxWait(countWait))
	if err != nil {
		return pending, nil, err
	}
	var first *v1alpha1.FeedPosition
	for m := range batch.Messages() {
		if sizes != nil {
			size, err := strconv.ParseInt(m.Headers().Get(nats.MsgSize), 10, 64)
			if err != nil {
				return pending, nil, fmt.Errorf("a message without its size: %w", err)
			}
			sizes.messages, sizes.bytes = sizes.messages+1, sizes.bytes+size
		}
		if first != nil {
			continue
		}
		meta, err := m.Metadata()
		if err != nil {
			return pending, nil, err
		}
		first = &v1alpha1.FeedPosition{Stream: stream.CachedInfo().Config.Name, Sequence: int64(meta.Sequence.Stream),
			Time: metav1.NewTime(meta.Timestamp.UTC().Truncate(time.Second))}
	}
	return pending, first, nil // one that went meanwhile is no error
}
