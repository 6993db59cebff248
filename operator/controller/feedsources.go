// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan/bus"
)

// sources keeps existing sources as they are, so that JetStream continues from their positions.
func sources(stand []*jetstream.StreamSource, wanted []bus.StreamSource) []*jetstream.StreamSource {
	want := make(map[bus.StreamSource]bool, len(wanted))
	for _, w := range wanted {
		want[w] = true
	}
	var all []*jetstream.StreamSource
	for _, is := range stand {
		if w := (bus.StreamSource{Stream: is.Name, Subject: is.FilterSubject}); want[w] {
			all = append(all, is)
			delete(want, w)
		}
	}
	for _, w := range wanted {
		if want[w] {
			all = append(all, &jetstream.StreamSource{Name: w.Stream, FilterSubject: w.Subject})
		}
	}
	return all
}

// continueSources has the sources of a Feed's stream continue from the position of the source for all instruments, if a selection by name follows
// it. In the other direction, the stream is to have all data of some instruments, so the new source begins at the beginning: messages that
// arrive a second time are older than the window in which JetStream drops duplicates.
func (b *busKeeper) continueSources(ctx context.Context, info *jetstream.StreamInfo, sources []*jetstream.StreamSource) error {
	code := b.want.marker.Code
	for base, subjects := range map[string]string{wire.ObservationStream(code): wire.ObservationSubjects(code), wire.NoticeStream(code): wire.NoticeSubjects(code)} {
		_, wereWild := sourcesOfSite(info.Config.Sources, code, base)
		named, wild := sourcesOfSite(sources, code, base)
		if !wereWild || wild || len(named) == 0 {
			continue
		}
		after, err := b.lastSourced(ctx, info.Config.Name, base, subjects)
		if err != nil {
			return err
		}
		for _, s := range named {
			if after > 0 && !slices.Contains(info.Config.Sources, s) {
				s.OptStartSeq = after + 1
			}
		}
	}
	return nil
}

// sourcesOfSite returns the sources that take the messages of a Site's own instruments from a base stream, and whether these are all
// instruments.
func sourcesOfSite(sources []*jetstream.StreamSource, code, base string) (all []*jetstream.StreamSource, wild bool) {
	for _, s := range sources {
		if s.Name != base || !bus.OfSite(code, s.FilterSubject) {
			continue
		}
		all = append(all, s)
		wild = wild || bus.OfAllInstruments(code, s.FilterSubject)
	}
	return all, wild
}

// lastSourced returns the sequence in a base stream of the newest message that a Feed's stream
// took from it; 0 where it holds none.
func (b *busKeeper) lastSourced(ctx context.Context, name, base, subjects string) (uint64, error) {
	consumer, err := b.js.CreateConsumer(ctx, name, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverLastPolicy, FilterSubject: subjects,
		AckPolicy: jetstream.AckNonePolicy, HeadersOnly: true, MemoryStorage: true, Replicas: 1, InactiveThreshold: countKept,
	})
	if err != nil {
		return 0, err
	}
	is := consumer.CachedInfo()
	defer func() { _ = b.js.DeleteConsumer(ctx, name, is.Name) }() // the server forgets it anyway
	if is.NumPending == 0 {
		return 0, nil
	}
	m, err := consumer.Next(jetstream.FetchMaxWait(countWait))
	if err != nil {
		return 0, fmt.Errorf("newest message of stream %s: %w", name, err)
	}
	from, sequence, ok := wire.SourcePosition(m.Headers().Get(wire.HeaderStreamSource))
	if !ok || from != base {
		return 0, fmt.Errorf("the newest message of stream %s does not say where it is from", name)
	}
	return sequence, nil
}
