// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/kvbucket"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan/bus"
)

// positions are how far consumers of delivery NATS have come, as stored in the bucket of cursors: a durable that was deleted from outside,
// even while no operator runs, continues behind its position.
type positions struct {
	bucket jetstream.KeyValue
	// made is when the bucket that was read was created: a recreated one holds nothing.
	made time.Time
	kept map[string]bus.KeptPosition
	// newer are the positions that this version of the operator cannot read, and why.
	newer map[string]error
}

// readPositions reads the stored positions, once for each bucket. Only the operator writes them.
func (b *busKeeper) readPositions(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	bucket := wire.CursorBucket(b.want.marker.Code)
	s, err := b.js.Stream(ctx, streamOf(bucket))
	if err != nil {
		return fmt.Errorf("bucket %s: %w", bucket, err)
	}
	is := &b.looked.positions
	if is.kept != nil && is.made.Equal(s.CachedInfo().Created) {
		return nil
	}
	kv, err := b.js.KeyValue(ctx, bucket)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", bucket, err)
	}
	next := positions{bucket: kv, made: s.CachedInfo().Created, kept: map[string]bus.KeptPosition{}, newer: map[string]error{}}
	err = stream.Entries(ctx, b.js, kv, wire.PositionCursorKeys, func(e jetstream.KeyValueEntry) error {
		consumer, ok := wire.ParsePositionCursorKey(e.Key())
		if !ok {
			return nil
		}
		cursor, err := wire.Decode[wire.PositionCursor](e.Value())
		if errors.Is(err, wire.ErrNewerFormat) {
			next.newer[consumer] = fmt.Errorf("entry %s of bucket %s: %w", e.Key(), bucket, err)
			return nil
		}
		if err != nil {
			b.log.Warn("cannot read the position of a consumer", "bucket", bucket, "key", e.Key(), "error", err)
		}
		next.kept[consumer] = bus.KeptPosition{PositionCursor: cursor}
		return nil
	})
	if err == nil {
		*is = next
	}
	return err
}

// keptPosition returns the stored position of the FeedConsumer of a durable. While it cannot be read no durable is created: it would begin
// with the oldest message.
func (b *busKeeper) keptPosition(d bus.Durable) (wire.PositionCursor, error) {
	is := &b.looked.positions
	if is.kept == nil {
		return wire.PositionCursor{}, errors.New("its position is not known yet: the bucket of cursors cannot be read")
	}
	consumer, _ := wire.ParseConsumerDurable(d.Name)
	return is.kept[consumer].PositionCursor, is.newer[consumer]
}

// keepPositions writes the positions that changed.
func (b *busKeeper) keepPositions(ctx context.Context, p bus.Plan) error {
	is := &b.looked.positions
	if is.kept == nil {
		return nil
	}
	var errs []error
	change := bus.Positions(p, b.found.positions, is.kept, b.now())
	for consumer, cursor := range change.Put {
		if is.newer[consumer] != nil {
			continue
		}
		data, err := wire.Encode(cursor)
		if err == nil {
			call, cancel := context.WithTimeout(ctx, objectTimeout)
			_, err = is.bucket.Put(call, wire.PositionCursorKey(consumer), data)
			cancel()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("the place of FeedConsumer %s: %w", consumer, err))
			continue
		}
		is.kept[consumer] = bus.KeptPosition{PositionCursor: cursor, WrittenTime: b.now()}
	}
	for _, consumer := range change.Remove {
		call, cancel := context.WithTimeout(ctx, objectTimeout)
		err := kvbucket.Forget(call, b.js, is.bucket.Bucket(), wire.PositionCursorKey(consumer))
		cancel()
		if err != nil {
			errs = append(errs, fmt.Errorf("the place of FeedConsumer %s: %w", consumer, err))
			continue
		}
		delete(is.kept, consumer)
	}
	return errors.Join(errs...)
}
