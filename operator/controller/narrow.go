// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan/bus"
)

// narrow removes from all existing durables, also from those without a FeedConsumer, the subjects that the plan in force does not give
// them. When it returns nil, no durable delivers anything else, and this operator allows none to until another plan is in force: closed
// entries may be written into the registry.
func (l *link) narrow(ctx context.Context) error {
	l.mu.Lock()
	js := l.js
	l.mu.Unlock()
	if js == nil {
		return errNotConnected
	}
	l.changes.Lock()
	defer l.changes.Unlock()
	p := l.facts.busPlan()
	if p == nil {
		return errNotConnected
	}
	names, err := l.durableStreams(ctx, js)
	if err != nil {
		return err
	}
	b := &busKeeper{link: l, js: js}
	for _, name := range names {
		if err := b.narrowAll(ctx, name, p); err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
	}
	return nil
}

// narrowAll narrows the durables of a stream.
func (b *busKeeper) narrowAll(ctx context.Context, name string, p *bus.Plan) error {
	listing, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	s, durables, err := b.durablesOf(listing, name)
	if err != nil {
		return err
	}
	return atOnce(ctx, durables, func(ctx context.Context, durable string) error {
		if err := b.narrowOne(ctx, s, durable, p); err != nil {
			return fmt.Errorf("durable %s: %w", durable, err)
		}
		return nil
	})
}

// durableStreams are the streams of the Site, except those that feed servers fill message by message, as the registry says.
func (l *link) durableStreams(ctx context.Context, js jetstream.JetStream) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	code := l.want.marker.Code
	var all []string
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		if _, ofFeed := wire.ParseFeedStream(code, name); ofFeed || name == wire.ObservationStream(code) || name == wire.NoticeStream(code) {
			all = append(all, name)
		}
	}
	return all, names.Err()
}

// durablesOf returns the durables of FeedConsumers in a stream; none if the stream does not exist.
func (b *busKeeper) durablesOf(ctx context.Context, stream string) (jetstream.Stream, []string, error) {
	s, err := b.js.Stream(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	var all []string
	names := s.ConsumerNames(ctx)
	for name := range names.Name() {
		if _, ofConsumer := wire.ParseConsumerDurable(name); ofConsumer {
			all = append(all, name)
		}
	}
	return s, all, names.Err()
}

// atOnce calls do for each, maxWrites at a time and each with a deadline of its own. It returns when no call is running any more, with the
// first error.
func atOnce[T any](ctx context.Context, all []T, do func(context.Context, T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxWrites)
	for _, one := range all {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, opTimeout)
			defer cancel()
			return do(ctx, one)
		})
	}
	return group.Wait()
}

// narrowOne removes from a durable the subjects that the plan does not give it.
func (b *busKeeper) narrowOne(ctx context.Context, s jetstream.Stream, name string, p *bus.Plan) error {
	consumer, _ := wire.ParseConsumerDurable(name)
	d, planned := p.Durable(s.CachedInfo().Config.Name, name)
	if !planned { // one under another name may continue from the position of this one
		d, planned = p.Succeeds(s.CachedInfo().Config.Name, consumer)
	}
	if !planned && unneeded(p, consumer) {
		return b.removeDurable(ctx, s, name)
	}
	if !planned {
		return b.narrowTo(ctx, s, name, p.MayRead[consumer])
	}
	c, err := s.Consumer(ctx, name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	is := c.CachedInfo().Config
	if !bus.Wider(b.want.marker.Code, filters(is), d.Subjects) {
		return nil
	}
	is.FilterSubject, is.FilterSubjects = "", d.Subjects
	if _, err := s.UpdateConsumer(ctx, is); err != nil {
		return b.withholdInstead(ctx, s, name, err)
	}
	b.log.Info("narrowed a durable: removed what is closed to its consumer", "stream", d.Stream, "durable", name)
	return nil
}

// withholdInstead has a durable that cannot be narrowed deliver nothing: it waits for the next plan, and closed data does not wait for it.
func (b *busKeeper) withholdInstead(ctx context.Context, s jetstream.Stream, name string, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), opTimeout) // the context of the change may have ended
	defer cancel()
	if err := b.withhold(ctx, s, name, fmt.Sprintf("it cannot be narrowed: %v", why)); err != nil {
		return errors.Join(why, err)
	}
	return nil
}

// errOutdated: the registry does not match the plan in force.
var errOutdated = errors.New("another operator has written the registry since; reading it first")

// changeAsPlanned creates or changes a durable as the plan in force says now, which may be a newer plan than the one being processed. It does
// nothing if that plan has no durable of its name.
func (b *busKeeper) changeAsPlanned(d bus.Durable, do func(bus.Durable) (*jetstream.ConsumerInfo, error)) (*jetstream.ConsumerInfo, error) {
	b.changes.Lock()
	defer b.changes.Unlock()
	d, planned := b.facts.busPlan().Durable(d.Stream, d.Name)
	if !planned {
		return nil, nil
	}
	return do(d)
}

// guardWidening creates or changes a durable that has some subjects, or does not exist. Another operator may have closed something: the durable
// gets more subjects only while the registry is as this operator wrote it, and they are removed again if it no longer is afterwards.
func (b *busKeeper) guardWidening(ctx context.Context, d bus.Durable, has []string, do func() (*jetstream.ConsumerInfo, error)) (*jetstream.ConsumerInfo, error) {
	if !bus.Wider(b.want.marker.Code, d.Subjects, has) {
		return do()
	}
	if err := b.registryIsOurs(ctx); err != nil {
		return nil, err
	}
	info, err := do()
	if err != nil {
		return nil, err
	}
	if err := b.registryIsOurs(ctx); err != nil {
		if len(has) == 0 {
			return nil, errors.Join(err, b.js.DeleteConsumer(ctx, d.Stream, d.Name))
		}
		is := info.Config
		is.FilterSubject, is.FilterSubjects = "", has
		_, undone := b.js.UpdateConsumer(ctx, d.Stream, is)
		return nil, errors.Join(err, undone)
	}
	return info, nil
}

// registryIsOurs asks the leader of the registry whether this operator was the last to write
// it.
func (l *link) registryIsOurs(ctx context.Context) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	_, _, _, wrote := l.facts.snapshot()
	l.mu.Lock()
	js, kv := l.js, l.registry
	l.mu.Unlock()
	if kv == nil {
		return errNotConnected
	}
	value, _, err := stream.Newest(ctx, js, kv.Bucket(), wire.RegistryCompleteKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) && wrote == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("registry marker: %w", err)
	}
	is, err := decodeComplete(value)
	if err != nil {
		return err
	}
	if is == nil || wrote == nil || *is != *wrote {
		return errOutdated
	}
	return nil
}
