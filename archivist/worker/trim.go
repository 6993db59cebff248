// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/diskbudget"
	"github.com/substorm/substorm/internal/highwater"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// A stream that is fuller than fullFrom is trimmed of what is archived even
// before its retention is over, a part of its messages at a time, until it is no
// fuller than fullTo: a stream that is full refuses what instruments send.
const (
	fullFrom = 0.9
	fullTo   = 0.8
	trimPart = 5 // one in five
	// sourcedInterval is how often a stream is trimmed at least that a leaf may fill
	// with what it received in weeks: at 50 MB/s the last tenth of 4 GiB, the
	// default, lasts for eight seconds.
	sourcedInterval = 4 * time.Second
	// budgetInterval is how often is looked whether the disk budget is nearly used up, and budgetPause how long the file system has to
	// say what a purge has freed.
	budgetInterval, budgetPause = 2 * time.Second, 300 * time.Millisecond
	// archivedPoll is how often a trimmer looks whether it is known what is archived.
	archivedPoll = 10 * time.Millisecond
)

// trimmer removes from one base stream what is archived and older than its retention. Our own messages that
// are not archived stay, whatever their age.
type trimmer struct {
	js     jetstream.JetStream
	stream string
	// subjects of our own messages; a leaf's are archived where it is.
	subjects  []string
	retention time.Duration
	interval  time.Duration
	// sourced: the stream has leaves' messages too, when it was last looked at.
	sourced  bool
	archived func() stream.Position
	// from returns the first place from which the messages on some subjects must stay
	// though they are archived; 0 before that is known. Optional.
	from map[string]func() uint64
	// budget of the disk; nil: none.
	budget  *diskbudget.Budget
	lease   *stream.Lease
	log     *slog.Logger
	metrics *metrics
}

// Run trims as soon as it is known what is archived, and then each interval: a
// full stream has no time to lose, and the lease may not last an interval.
func (t *trimmer) Run(ctx context.Context) error {
	if err := t.awaitArchived(ctx); err != nil {
		return err
	}
	for {
		if err := t.trim(ctx, time.Now()); err != nil && ctx.Err() == nil {
			if errors.Is(err, stream.ErrLeaseLost) {
				return err
			}
			t.log.Warn("a stream was not trimmed", "stream", t.stream, "error", err)
		}
		wait := t.interval
		if t.sourced {
			wait = min(wait, sourcedInterval)
		}
		if t.budget != nil {
			wait = min(wait, budgetInterval)
		}
		if !retry.Sleep(ctx, wait) {
			return ctx.Err()
		}
	}
}

func (t *trimmer) awaitArchived(ctx context.Context) error {
	for t.archived().Epoch == "" {
		if !retry.Sleep(ctx, archivedPoll) {
			return ctx.Err()
		}
	}
	return nil
}

// trim removes what is older than its retention where the NATS server's clock says so too,
// and trims a stream that is nearly full whatever clocks say. Errors: stream.ErrClock, JetStream's.
func (t *trimmer) trim(ctx context.Context, now time.Time) error {
	s, err := t.js.Stream(ctx, t.stream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", t.stream, err)
	}
	info := s.CachedInfo()
	t.sourced = len(info.Config.Sources) > 0
	archived := t.archived()
	if archived.Epoch != wire.StreamEpoch(info.Created) {
		return nil // known of a stream that is gone
	}
	t.metrics.lag.WithLabelValues(t.stream).Set(float64(info.State.LastSeq+1) - float64(archived.Next))
	if info.State.Msgs == 0 {
		return nil
	}
	limit := info.State.FirstSeq
	clocks := stream.Agree(now, info.TimeStamp)
	if expired := highwater.Limit(now).Add(-t.retention); clocks == nil && info.State.FirstTime.Before(expired) {
		if limit, err = stream.FirstSince(ctx, t.js, t.stream, expired); err != nil {
			return err
		}
	}
	if err := t.purge(ctx, s, info, trimmedByAge, limit, archived.Next); err != nil {
		return err
	}
	return errors.Join(clocks, t.makeSpace(ctx, s, archived.Next), t.makeSpaceOnDisk(ctx, s, archived.Next))
}

// makeSpace purges a nearly full stream, whatever its retention, until it has space
// or all that is left must stay.
func (t *trimmer) makeSpace(ctx context.Context, s jetstream.Stream, archived uint64) error {
	full := fullFrom
	for limit := uint64(0); ; {
		info, err := s.Info(ctx)
		if err != nil {
			return fmt.Errorf("stream %s: %w", t.stream, err)
		}
		end := info.State.LastSeq + 1
		if !t.sourced {
			end = archived
		}
		limit = max(limit, info.State.FirstSeq)
		if info.Config.MaxBytes <= 0 || float64(info.State.Bytes) <= full*float64(info.Config.MaxBytes) || limit >= end {
			return nil
		}
		if full == fullFrom {
			t.log.Warn("the stream is nearly full: archived messages go before their retention is over", "stream", t.stream)
			full = fullTo
		}
		limit = min(end, limit+max(1, (info.State.LastSeq-limit)/trimPart))
		if err := t.purge(ctx, s, info, trimmedAsFull, limit, archived); err != nil {
			return err
		}
	}
}

// makeSpaceOnDisk purges what is archived, whatever its retention, until the disk budget has space again or all that is left is not
// archived.
func (t *trimmer) makeSpaceOnDisk(ctx context.Context, s jetstream.Stream, archived uint64) error {
	for limit, told := uint64(0), false; t.budget.State().Messages; told = true {
		info, err := s.Info(ctx)
		if err != nil {
			return fmt.Errorf("stream %s: %w", t.stream, err)
		}
		if limit = max(limit, info.State.FirstSeq); limit >= archived {
			return nil
		}
		if !told {
			t.log.Warn("the disk budget is nearly used up: archived messages go before their retention is over", "stream", t.stream)
		}
		limit = min(archived, limit+max(1, (archived-limit)/trimPart))
		if err := t.purge(ctx, s, info, trimmedForDisk, limit, archived); err != nil {
			return err
		}
		if !retry.Sleep(ctx, budgetPause) {
			return ctx.Err()
		}
	}
	return nil
}

// purge removes messages before limit: our own messages up to what is archived, and of a leaf's all
// but the newest. That one bears the leaf's sequence, from which a server that lost its index
// continues to source: without it everything that the leaf still holds would come a second time.
func (t *trimmer) purge(ctx context.Context, s jetstream.Stream, info *jetstream.StreamInfo, reason string, limit, archived uint64) error {
	cuts, err := t.cuts(ctx, info, limit, archived)
	if err != nil || len(cuts) == 0 {
		return err
	}
	for _, c := range cuts {
		if err := t.lease.Check(); err != nil {
			return err
		}
		if err := s.Purge(ctx, jetstream.WithPurgeSequence(c.limit), jetstream.WithPurgeSubject(c.subjects)); err != nil {
			return fmt.Errorf("purge stream %s up to %d: %w", t.stream, c.limit, err)
		}
	}
	after, err := s.Info(ctx)
	if err != nil {
		return fmt.Errorf("stream %s: %w", t.stream, err)
	}
	t.metrics.trimmed.WithLabelValues(t.stream, reason).Add(float64(removed(after)) - float64(removed(info)))
	return nil
}

// removed returns how many messages have gone since the stream was made.
func removed(info *jetstream.StreamInfo) uint64 { return info.State.LastSeq - info.State.Msgs }

// cut is up to where the messages on subjects may go; "" means all subjects.
type cut struct {
	subjects string
	limit    uint64
}

// sourcedSubjects are the subjects of the leaf's own messages in our stream. Messages that the leaf sent under our
// subjects are removed together with the messages before them.
func sourcedSubjects(s *jetstream.StreamSource) []string {
	if len(s.SubjectTransforms) == 0 {
		return []string{s.FilterSubject}
	}
	return []string{s.SubjectTransforms[0].Destination}
}

// cuts returns what may go: first the limit up to which every subject may go, which is quick, and
// then the subjects that may go further.
func (t *trimmer) cuts(ctx context.Context, info *jetstream.StreamInfo, limit, archived uint64) ([]cut, error) {
	var of []cut
	for _, subjects := range t.subjects {
		c := cut{subjects, min(limit, archived)}
		if from := t.from[subjects]; from != nil {
			c.limit = min(c.limit, from())
		}
		of = append(of, c)
	}
	for _, source := range info.Config.Sources {
		for _, subjects := range sourcedSubjects(source) {
			newest, err := stream.LastOf(ctx, t.js, t.stream, subjects)
			if err != nil {
				return nil, err
			}
			if newest > 0 {
				of = append(of, cut{subjects, min(limit, newest)})
			}
		}
	}
	all := cut{limit: limit}
	for _, c := range of {
		all.limit = min(all.limit, c.limit)
	}
	further := func(c cut) bool { return c.limit > max(all.limit, info.State.FirstSeq) }
	of = slices.DeleteFunc(of, func(c cut) bool { return !further(c) })
	if all.limit > info.State.FirstSeq {
		of = append([]cut{all}, of...)
	}
	return of, nil
}
