// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/kvbucket"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/feeds"
	"github.com/substorm/substorm/operator/plan/finding"
)

const (
	// lookEvery is how often the streams and durables of Feeds and FeedConsumers are checked: one that was deleted by hand is restored
	// within that time.
	lookEvery = 5 * time.Second
	// countEvery is how often the messages of Feeds are counted.
	countEvery = time.Minute
	// lookTimeout bounds one look at all of them, and objectTimeout at one of them.
	lookTimeout   = time.Minute
	objectTimeout = 5 * time.Second
)

// keepFeeds keeps the streams and durables of the Site's Feeds and FeedConsumers as planned, while JetStream is connected.
func (l *link) keepFeeds(ctx context.Context) {
	timer := time.NewTicker(lookEvery)
	defer timer.Stop()
	counted := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-l.facts.feeds.sign:
		}
		l.mu.Lock()
		js := l.js
		l.mu.Unlock()
		p := l.facts.busPlan()
		if js == nil || p == nil || !js.Conn().IsConnected() {
			continue
		}
		look, cancel := context.WithTimeout(ctx, lookTimeout)
		made, err := l.applyBusPlan(look, js, *p)
		if !made && (l.now().Sub(counted) >= countEvery || !l.facts.allCounted(*p)) {
			counted = l.now()
			err = errors.Join(err, l.countFeeds(look, js, *p))
		}
		cancel()
		if err != nil && ctx.Err() == nil {
			l.log.Warn("cannot check the streams and durables of feeds", "error", err)
		}
	}
}

// looked is remembered from one look to the next.
type looked struct {
	// silent are streams and durables that did not answer: they are asked last.
	silent map[string]bool
	// positions are the positions in the bucket of cursors.
	positions positions
	// closed says, by stream of a consumer, in which state nothing in it was closed to
	// the consumer.
	closed map[string]string
}

// applyBusPlan creates and changes what is planned, and removes what no Feed or consumer has any more. A refusal by JetStream is a finding,
// and so is a missing answer: the other objects do not wait for it. Errors are what could not be determined. Made: a stream is new, and has
// not sourced yet what it will hold.
func (l *link) applyBusPlan(ctx context.Context, js jetstream.JetStream, p bus.Plan) (made bool, err error) {
	b := &busKeeper{link: l, js: js, epochs: map[string]string{}, silent: map[string]bool{}, several: map[string]bool{},
		found: busFound{streams: map[string]accept.StreamFound{}, durables: map[string]finding.Finding{}, positions: map[string]wire.PositionCursor{}}}
	errs := []error{b.readPositions(ctx), b.keepStreams(ctx, p.Streams), b.keepDurables(ctx, p.Durables)}
	if ctx.Err() != nil {
		return b.made, errors.Join(append(errs, ctx.Err())...)
	}
	l.looked.silent = b.silent
	streams, consumers := l.facts.setFound(b.found)
	for _, name := range streams {
		if feed, ok := wire.ParseFeedStream(l.want.marker.Code, name); ok {
			l.feedFound(feed)
		}
	}
	if len(streams) > 0 {
		l.changed() // the findings decide what is accepted
	}
	for _, name := range consumers {
		l.consumerFound(name)
	}
	errs = append(errs, b.keepPositions(ctx, p), b.sweep(ctx, p), b.removeFeedStreams(ctx, p.Leaving))
	for _, name := range l.facts.setSwept(b.swept) {
		l.feedFound(name)
	}
	return b.made, errors.Join(append(errs, l.forgetReports(ctx, js, p))...)
}

// keepStreams looks at all that are planned.
func (b *busKeeper) keepStreams(ctx context.Context, all []bus.OwnStream) error {
	var errs []error
	for _, i := range b.silentLast(len(all), func(i int) string { return all[i].Name }) {
		s := all[i]
		call, cancel := context.WithTimeout(ctx, objectTimeout)
		err := b.keepStream(call, s)
		cancel()
		if err == nil || ctx.Err() != nil {
			continue
		}
		f := feeds.StreamSilent("stream "+s.Name, err)
		b.silent[s.Name], b.found.streams[s.Name] = true, accept.StreamFound{Problem: &f}
		errs = append(errs, fmt.Errorf("stream %s: %w", s.Name, err))
	}
	return errors.Join(errs...)
}

// keepDurables checks all that are planned. Those of streams that do not answer do not answer either.
func (b *busKeeper) keepDurables(ctx context.Context, all []bus.Durable) error {
	var errs []error
	named := func(i int) string { return all[i].Stream + "/" + all[i].Name }
	for _, i := range b.silentLast(len(all), named) {
		d, err := all[i], errSilent
		if !b.silent[d.Stream] {
			call, cancel := context.WithTimeout(ctx, objectTimeout)
			err = b.keepDurable(call, d)
			cancel()
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		consumer, _ := wire.ParseConsumerDurable(d.Name)
		b.silent[named(i)] = true
		b.noteWorst(consumer, feeds.StreamSilent(fmt.Sprintf("durable %s of stream %s", d.Name, d.Stream), err))
		if was := b.facts.positionOf(consumer); was.UID == d.UID && was.Streams[d.Stream] != "" {
			b.position(d, was.Streams[d.Stream])
		}
		errs = append(errs, fmt.Errorf("durable %s of stream %s: %w", d.Name, d.Stream, err))
	}
	return errors.Join(errs...)
}

// errSilent: its stream did not answer in this round, so it was not asked.
var errSilent = errors.New("its stream does not answer")

// silentLast returns the places in a list, those last which did not answer last time.
func (b *busKeeper) silentLast(count int, name func(int) string) []int {
	var first, last []int
	for i := range count {
		if b.looked.silent[name(i)] {
			last = append(last, i)
		} else {
			first = append(first, i)
		}
	}
	return append(first, last...)
}

// forgetReports removes outdated reports: pods of feed servers have another name each time.
func (l *link) forgetReports(ctx context.Context, js jetstream.JetStream, p bus.Plan) error {
	keys := l.facts.reports.stale(p, l.now())
	if len(keys) == 0 {
		return nil
	}
	for _, key := range keys {
		if err := kvbucket.Forget(ctx, js, wire.StatusBucket(l.want.marker.Code), key); err != nil {
			return err
		}
	}
	return nil
}

// busKeeper is one look at all of a Site's streams and durables of Feeds.
type busKeeper struct {
	*link
	js jetstream.JetStream
	// epochs of streams that were looked at.
	epochs map[string]string
	found  busFound
	// silent are those that did not answer this time.
	silent map[string]bool
	made   bool
	swept  swept
	// several are consumers' streams with more than the one durable.
	several map[string]bool
}

// refusedBy returns JetStream's answer, if there was one.
func refusedBy(err error) (string, bool) {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.Code != 503 { // 503: it cannot answer now
		if api.ErrorCode == codeStorageExceeded {
			return api.Description + ": lower its maxSize or those of other streams, or give the servers a larger disk", true
		}
		return api.Description, true
	}
	if errors.Is(err, nats.ErrMaxPayload) {
		return "the names that are selected make a request larger than the NATS servers take (max_payload): select all, select fewer, or raise max_payload", true
	}
	return "", false
}

func (b *busKeeper) keepStream(ctx context.Context, s bus.OwnStream) error {
	found := accept.StreamFound{Storage: s.Storage}
	existing, err := b.js.Stream(ctx, s.Name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		var cfg jetstream.StreamConfig
		if cfg, err = ownStreamConfig(jetstream.StreamConfig{Name: s.Name, Storage: storage(s.Storage)}, s, b.want.marker); err == nil {
			_, err = b.js.CreateStream(ctx, cfg)
		}
		if err == nil {
			b.made = true
			b.log.Info("made a stream", "stream", s.Name)
		}
	case err == nil:
		b.several[s.Name] = existing.CachedInfo().State.Consumers > 1
		found.Storage = v1alpha1.StorageFile
		if existing.CachedInfo().Config.Storage == jetstream.MemoryStorage {
			found.Storage = v1alpha1.StorageMemory
		}
		err = b.changeStream(ctx, existing.CachedInfo(), s)
	}
	var conflict errMarker
	if errors.As(err, &conflict) {
		found.Problem = &conflict.Finding
	} else if problem, refused := refusedBy(err); refused {
		found.Problem = new(feeds.StreamRefused("stream "+s.Name, problem))
	} else if err != nil {
		return err
	}
	b.found.streams[s.Name] = found
	return nil
}

func (b *busKeeper) changeStream(ctx context.Context, info *jetstream.StreamInfo, s bus.OwnStream) error {
	ours, found, err := b.ours(info)
	if err != nil {
		return err
	}
	if !ours {
		return errMarker{plan.MarkerConflict(b.want.marker, *found, "stream "+s.Name)}
	}
	cfg, err := ownStreamConfig(info.Config, s, b.want.marker)
	if err != nil || reflect.DeepEqual(cfg, info.Config) {
		return err
	}
	if err := b.continueSources(ctx, info, cfg.Sources); err != nil {
		return err
	}
	_, err = b.js.UpdateStream(ctx, cfg)
	if err == nil {
		b.log.Info("changed a stream", "stream", s.Name)
	}
	return err
}

// ours says whether a stream may be changed by this Site.
func (b *busKeeper) ours(info *jetstream.StreamInfo) (ours bool, found *wire.SiteMarker, err error) {
	if text := info.Config.Metadata[wire.StreamMetadataMarker]; text != "" {
		m, err := wire.Decode[wire.SiteMarker]([]byte(text))
		if err != nil {
			return false, nil, fmt.Errorf("its marker: %w", err)
		}
		found = &m
	}
	return plan.JudgeMarker(b.want.marker, found, b.want.takeOver) != plan.MarkerRespect, found, nil
}

func storage(s v1alpha1.StreamStorage) jetstream.StorageType {
	if s == v1alpha1.StorageMemory {
		return jetstream.MemoryStorage
	}
	return jetstream.FileStorage
}

// ownStreamConfig sets the fields of a stream's configuration that the operator owns, except the storage, which cannot be changed.
func ownStreamConfig(cfg jetstream.StreamConfig, s bus.OwnStream, marker wire.SiteMarker) (jetstream.StreamConfig, error) {
	text, err := wire.Encode(marker)
	if err != nil {
		return cfg, err
	}
	cfg.Description = s.Description
	cfg.Subjects = s.Subjects
	cfg.MaxBytes = s.MaxBytes
	cfg.MaxAge = s.MaxAge
	cfg.Replicas = s.Replicas
	cfg.Duplicates = s.Duplicates
	cfg.Retention = jetstream.LimitsPolicy
	cfg.Discard = jetstream.DiscardOld
	cfg.AllowDirect = true
	if s.PerSubject > 0 {
		cfg.MaxMsgsPerSubject = s.PerSubject
	}
	cfg.Sources = sources(cfg.Sources, s.Sources)
	cfg.Metadata = maps.Clone(cfg.Metadata)
	if cfg.Metadata == nil {
		cfg.Metadata = map[string]string{}
	}
	cfg.Metadata[wire.StreamMetadataMarker] = string(text)
	cfg.Metadata[wire.StreamMetadataDeletion] = string(s.Deletion)
	return cfg, nil
}
