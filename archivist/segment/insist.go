// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// insistPause is how long what JetStream refused waits to be asked again.
const insistPause = time.Second

// The requests of the cutter to JetStream, as the metric names them.
const (
	requestNotice = "notice"
	requestCursor = "cursor"
	requestLedger = "ledger"
	// requestMessages: those of a segment that the stream has and does not give.
	requestMessages = "messages"
)

// retryRefused repeats a request to JetStream for as long as JetStream refuses it, as it does when it is full or a stream
// has no leader. If a refusal ended the cutter, it would also end all other work under the lease, including the work
// that makes space. A refused request changed nothing. Errors: stream.ErrLeaseLost, stream.ErrConflict, those of ctx,
// and a missing answer, after which the outcome is unknown.
func (c *Cutter) retryRefused(ctx context.Context, request, of, name string, ask func() error) error {
	for {
		if err := c.cfg.Lease.Check(); err != nil {
			return err
		}
		err := ask()
		if !refused(err) {
			return err
		}
		c.cfg.Metrics.refused.WithLabelValues(request).Inc()
		c.cfg.Log.Warn("JetStream refuses a request for a segment; retrying",
			"request", request, of, name, "wait", insistPause, "error", err)
		if !retry.Sleep(ctx, insistPause) {
			return ctx.Err()
		}
	}
}

// refused says whether JetStream answered that it does not do it now, or that no server is there to
// do it. Another writer's entry is no such answer: a cutter that meets it is fenced.
func refused(err error) bool {
	if errors.Is(err, stream.ErrConflict) {
		return false
	}
	var answer *jetstream.APIError
	return errors.As(err, &answer) || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders)
}

// loadCursor reads a channel's cursor.
func (c *Cutter) loadCursor(ctx context.Context, ch *channel) error {
	var data []byte
	err := c.retryRefused(ctx, requestCursor, "key", wire.SegmentCursorKey(ch.instrument, ch.channel), func() (err error) {
		data, err = ch.cell.Load(ctx)
		return err
	})
	if err != nil || data == nil {
		return err
	}
	if ch.cursor, err = wire.Decode[wire.SegmentCursor](data); err != nil {
		return fmt.Errorf("cursor of channel %s of instrument %s: %w", ch.channel, ch.instrument, err)
	}
	ch.published = publishedOf(&ch.cursor)
	return nil
}

// saveCursor writes a channel's cursor.
func (c *Cutter) saveCursor(ctx context.Context, ch *channel) error {
	ch.published.save(&ch.cursor)
	value, err := wire.Encode(ch.cursor)
	if err != nil {
		return err
	}
	return c.retryRefused(ctx, requestCursor, "key", wire.SegmentCursorKey(ch.instrument, ch.channel),
		func() error { return ch.cell.Store(ctx, value) })
}
