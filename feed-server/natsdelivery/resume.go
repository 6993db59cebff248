// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// newestBatch messages are asked for at a time: 4 MiB at most.
const newestBatch = 16

// resume returns the place behind which to go on: that which the last message of the
// consumer's stream names, or that was noted of this stream since. Into a stream of
// which nothing is known it puts the newest of each subject first.
func (f *filler) resume(ctx context.Context) (wire.FeedToken, error) {
	noted, known := f.places.of(f.consumer, f.selection.Consumer.UID, f.epoch, f.last)
	s, err := f.cfg.JetStream.Stream(ctx, f.stream)
	if err != nil {
		return wire.FeedToken{}, fmt.Errorf("stream %s: %w", f.stream, err)
	}
	last, err := s.GetLastMsgForSubject(ctx, wire.LiveSubjects(f.cfg.Site, f.consumer))
	switch {
	case err == nil:
		place, err := wire.ParseFeedToken(last.Header.Get(wire.HeaderToken))
		if err == nil && place != (wire.FeedToken{}) {
			return further(place, noted), nil
		}
	case !errors.Is(err, jetstream.ErrMsgNotFound):
		return wire.FeedToken{}, fmt.Errorf("stream %s: %w", f.stream, err)
	}
	if known {
		return noted, nil
	}
	return f.newest(ctx)
}

// newest puts the newest of each subject into the stream, and returns the place behind them. Only
// the last one names that place: a feed server that is stopped before starts over.
func (f *filler) newest(ctx context.Context) (wire.FeedToken, error) {
	sel, site := f.selection, f.cfg.Site
	var place wire.FeedToken
	var err error
	if sel.Notices != "" && sel.Notices != sel.Telemetry {
		if place.Notices, err = f.streamEnd(ctx, sel.Notices); err != nil {
			return place, err
		}
	}
	if sel.Telemetry != "" {
		if place.Telemetry, err = f.streamEnd(ctx, sel.Telemetry); err != nil {
			return place, err
		}
	}
	filters := map[string][]string{}
	channels := slices.Sorted(maps.Keys(sel.Channels))
	for instrument, embargo := range f.filters.of(f.cfg.Registry.Snapshot()).Instruments {
		if embargo > 0 {
			continue // the newest is the youngest
		}
		if sel.Notices != "" {
			// The consumer does not begin with late objects: they may be older than the newest.
			filters[sel.Notices] = append(filters[sel.Notices], wire.SelectedNotices(site, instrument, false)...)
		}
		if sel.Telemetry != "" && (sel.Channels == nil || len(channels) > 0) {
			filters[sel.Telemetry] = append(filters[sel.Telemetry], wire.SelectedObservations(site, instrument, channels)...)
		}
	}
	var held *nats.Msg
	for name, subjects := range filters {
		end := place.Notices
		if name == sel.Telemetry {
			end = place.Telemetry
		}
		err := f.newestOf(ctx, name, subjects, end.Sequence, func(m *nats.Msg) error {
			m, held = held, m
			if m == nil {
				return nil
			}
			return f.put(ctx, []*nats.Msg{m})
		})
		if err != nil {
			return place, err
		}
	}
	if held == nil {
		return place, nil
	}
	held.Header.Set(wire.HeaderToken, place.String())
	return place, f.put(ctx, []*nats.Msg{held})
}

// streamEnd is the place behind a stream's last message.
func (f *filler) streamEnd(ctx context.Context, name string) (wire.ResumeToken, error) {
	epoch, state, err := stream.Epoch(ctx, f.cfg.JetStream, name)
	return wire.ResumeToken{Epoch: epoch, Sequence: state.LastSeq, Index: math.MaxUint32}, err
}

// newestOf calls each with the newest item of each of a stream's subjects, unless it is behind
// last: later items come by themselves.
func (f *filler) newestOf(ctx context.Context, name string, subjects []string, last uint64, each func(*nats.Msg) error) error {
	c, err := f.cfg.JetStream.CreateConsumer(ctx, name, jetstream.ConsumerConfig{
		FilterSubjects: subjects, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: waitingIdle,
	})
	if err != nil {
		return fmt.Errorf("newest messages of %s: %w", name, err)
	}
	defer func() { _ = f.cfg.JetStream.DeleteConsumer(ctx, name, c.CachedInfo().Name) }()
	for left := c.CachedInfo().NumPending; left > 0; {
		batch, err := c.FetchNoWait(int(min(left, newestBatch)))
		if err != nil {
			return fmt.Errorf("newest messages of %s: %w", name, err)
		}
		got := uint64(0)
		for m := range batch.Messages() {
			got++
			meta, err := m.Metadata()
			if err != nil || meta.Sequence.Stream > last {
				continue
			}
			i, ok := newestItem(m)
			if !ok {
				continue
			}
			i.At = meta.Timestamp
			if live := f.live(i); live != nil {
				if err := each(live); err != nil {
					return err
				}
			}
		}
		if got == 0 { // some left the stream meanwhile
			return batch.Error()
		}
		left -= min(left, got)
	}
	return nil
}

// newestItem returns a notice, or the datagram that was received last.
func newestItem(m jetstream.Msg) (item, bool) {
	i := item{Subject: m.Subject(), Header: m.Headers(), Data: m.Data()}
	_, instrument, channel, err := wire.ParseObservationSubject(m.Subject())
	if err != nil {
		return i, true
	}
	i.Telemetry = true
	var newest wire.Datagram
	index, found := uint32(0), false
	for d, err := range wire.Datagrams(m.Data()) {
		if err != nil {
			break
		}
		if !found || !d.ReceivedAt.Before(newest.ReceivedAt) {
			newest, i.Index, found = d, index, true
		}
		index++
	}
	i.Size = len(newest.Payload)
	i.Data = wire.AppendDatagram(wire.AppendTelemetryHeader(nil, instrument, channel), newest)
	return i, found
}
