// SPDX-License-Identifier: Apache-2.0

// Package watch follows a key-value bucket: through outages of NATS, and on into a bucket that was recreated.
package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/retry"
)

const (
	// retryPause is between tries to reach a bucket that does not answer.
	retryPause = time.Second
	// firstWait is for the program that makes the bucket, where all of a Site's programs start at once.
	firstWait = 30 * time.Second
	// lookInterval is how often is looked whether the bucket that is watched is
	// still the same one.
	lookInterval = 5 * time.Second
	// openTimeout is for one look.
	openTimeout = 5 * time.Second
)

// Config says which bucket is followed, and who hears of it. One call is made at
// a time.
type Config struct {
	Bucket string
	// What names the bucket's content in the log.
	What   string
	Logger *slog.Logger

	// Begin is called before a bucket is read from its beginning: Take is called again for all that it holds.
	Begin func(Bucket)
	// Take is called for each entry, and each that was changed or removed.
	Take func(jetstream.KeyValueEntry)
	// Settle is called when all that the replica that answers held at the beginning was taken, and
	// after each change from then on.
	Settle func()
	// Newest, where set, is called once after each Begin, when all is settled that the bucket's
	// leader held: any replica may answer, also one that is behind. A caller that sets it may ask
	// the leader for messages (STREAM.MSG.GET).
	Newest func()
	// End, where set, is called when the bucket does not answer any more, or ctx ended.
	End func()
}

// Bucket identifies the bucket that is followed: another one of its name was made at another time.
type Bucket struct {
	Created time.Time
	// TTL is how long an entry lasts; 0 is for ever.
	TTL time.Duration
}

// Reasons to watch again, at once.
var (
	errOtherBucket = errors.New("the bucket was recreated, or the lifetime of its entries changed")
	errReconnected = errors.New("the connection to NATS was interrupted")
)

// Run follows the bucket until ctx ends.
func Run(ctx context.Context, js jetstream.JetStream, cfg Config) {
	began := time.Now()
	for said := ""; ctx.Err() == nil; {
		err := watch(ctx, js, cfg)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errOtherBucket) || errors.Is(err, errReconnected) {
			cfg.Logger.Info("following "+cfg.What+" again", "because", err)
			continue
		}
		level := slog.LevelWarn
		if errors.Is(err, jetstream.ErrBucketNotFound) && time.Since(began) < firstWait {
			level = slog.LevelInfo
		}
		if now := level.String() + err.Error(); now != said {
			said = now
			cfg.Logger.Log(ctx, level, "cannot follow "+cfg.What+"; its last seen state stays in force", "error", err)
		}
		retry.Sleep(ctx, retryPause)
	}
}

// watch follows one bucket until it is gone. The first batch of entries is what
// the bucket holds now.
func watch(ctx context.Context, js jetstream.JetStream, cfg Config) error {
	if cfg.End != nil {
		defer cfg.End()
	}
	kv, bucket, err := open(ctx, js, cfg)
	if err != nil {
		return err
	}
	w, err := kv.WatchAll(ctx)
	if err != nil {
		return fmt.Errorf("watch bucket %s: %w", cfg.Bucket, err)
	}
	defer func() { _ = w.Stop() }()
	reconnected := js.Conn().StatusChanged(nats.CONNECTED)
	defer js.Conn().RemoveStatusListener(reconnected)
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	cfg.Begin(bucket)
	r := reading{js: js, cfg: &cfg}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-reconnected: // the watch would find out by missing heartbeats, later
			return errReconnected
		case <-look.C:
			if _, now, err := open(ctx, js, cfg); err == nil && now != bucket {
				return errOtherBucket
			}
		case <-r.again:
			r.ask(ctx)
		case e, ok := <-w.Updates():
			if !ok {
				return fmt.Errorf("the watch on bucket %s ended", cfg.Bucket)
			}
			r.take(ctx, e)
		}
	}
}

func open(ctx context.Context, js jetstream.JetStream, cfg Config) (jetstream.KeyValue, Bucket, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	kv, err := js.KeyValue(ctx, cfg.Bucket)
	if err != nil {
		return nil, Bucket{}, fmt.Errorf("%s, bucket %s: %w", cfg.What, cfg.Bucket, err)
	}
	status, err := kv.Status(ctx)
	if err != nil {
		return nil, Bucket{}, fmt.Errorf("%s, bucket %s: %w", cfg.What, cfg.Bucket, err)
	}
	of, ok := status.(*jetstream.KeyValueBucketStatus)
	if !ok {
		return nil, Bucket{}, fmt.Errorf("%s, bucket %s: status is a %T", cfg.What, cfg.Bucket, status)
	}
	return kv, Bucket{Created: of.StreamInfo().Created.UTC(), TTL: of.TTL()}, nil
}
