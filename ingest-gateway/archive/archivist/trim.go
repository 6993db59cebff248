// SPDX-License-Identifier: Apache-2.0

package archivist

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// A stream that is fuller than fullFrom is trimmed of what is archived even
// before its retention is over, a part of its messages at a time: a stream that
// is full refuses what instruments send.
const (
	fullFrom = 0.9
	trimPart = 5 // one in five
	// archivedPoll is how often a trimmer looks whether it is known what is archived.
	archivedPoll = 10 * time.Millisecond
)

// trimmer removes from one base stream what is archived and older than its
// retention. What is not archived stays, whatever its age.
type trimmer struct {
	js        jetstream.JetStream
	stream    string
	retention time.Duration
	archived  func() stream.Position
	lease     *stream.Lease
	log       *slog.Logger
	metrics   *metrics
}

// run trims as soon as it is known what is archived, and then each interval: a
// full stream has no time to lose, and the lease may not last an interval.
func (t *trimmer) run(ctx context.Context, interval time.Duration) error {
	if err := t.awaitArchived(ctx); err != nil {
		return err
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := t.trim(ctx, time.Now()); err != nil && ctx.Err() == nil {
			if errors.Is(err, stream.ErrLeaseLost) {
				return err
			}
			t.log.Warn("a stream was not trimmed", "stream", t.stream, "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (t *trimmer) awaitArchived(ctx context.Context) error {
	for t.archived().Epoch == "" {
		select {
		case <-time.After(archivedPoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (t *trimmer) trim(ctx context.Context, now time.Time) error {
	s, err := t.js.Stream(ctx, t.stream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", t.stream, err)
	}
	info := s.CachedInfo()
	archived := t.archived()
	if archived.Epoch != wire.StreamEpoch(info.Created) {
		return nil // known of a stream that is gone
	}
	t.metrics.lag.WithLabelValues(t.stream).Set(float64(info.State.LastSeq+1) - float64(archived.Next))
	if info.State.Msgs == 0 {
		return nil
	}
	limit := info.State.FirstSeq
	if expired := now.Add(-t.retention); info.State.FirstTime.Before(expired) {
		if limit, err = stream.FirstSince(ctx, t.js, t.stream, expired); err != nil {
			return err
		}
	}
	if limit == info.State.FirstSeq && info.Config.MaxBytes > 0 && float64(info.State.Bytes) > fullFrom*float64(info.Config.MaxBytes) {
		limit += max(1, (info.State.LastSeq-info.State.FirstSeq)/trimPart)
		t.log.Warn("the stream is nearly full: archived messages go before their retention is over", "stream", t.stream)
	}
	limit = min(limit, archived.Next)
	if limit <= info.State.FirstSeq {
		return nil
	}
	if err := t.lease.Check(); err != nil {
		return err
	}
	if err := s.Purge(ctx, jetstream.WithPurgeSequence(limit)); err != nil {
		return fmt.Errorf("purge stream %s up to %d: %w", t.stream, limit, err)
	}
	t.metrics.trimmed.WithLabelValues(t.stream).Add(float64(limit - info.State.FirstSeq))
	return nil
}
