// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"context"
	"log/slog"
	"reflect"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

const (
	// figuresInterval is how often a report is written in which only figures changed.
	figuresInterval = 5 * wire.GatewayReportInterval
	reportTimeout   = 2 * time.Second
	// idleAfter is how long after it last asked for messages a consumer is Idle.
	idleAfter = time.Minute
)

// reporter writes what is measured of one consumer.
type reporter struct {
	*delivery
	key string
	log *slog.Logger

	bucket jetstream.KeyValue
	was    wire.ConsumerStatus
	at     time.Time
	said   bool
}

func (d *delivery) newReporter(consumer string, log *slog.Logger) *reporter {
	return &reporter{delivery: d, key: wire.ConsumerStatusKey(consumer, d.cfg.Pod), log: log}
}

// report writes a report where something changed: at once where that is the state,
// else now and then. What cannot be written is said, and tried again.
func (r *reporter) report(ctx context.Context, s wire.ConsumerStatus) {
	now := s.ReportedAt
	s.ReportedAt = time.Time{}
	telling := s.State != r.was.State || s.Gaps != r.was.Gaps
	switch {
	case reflect.DeepEqual(s, r.was):
		return
	case telling && now.Sub(r.at) < wire.GatewayReportInterval, !telling && now.Sub(r.at) < figuresInterval:
		return
	}
	is := s
	is.ReportedAt = now
	if err := r.put(ctx, is); err != nil {
		if !r.said {
			r.log.Warn("what is measured of a consumer cannot be reported", "error", err)
		}
		r.said = true
		return
	}
	r.was, r.at, r.said = s, now, false
}

func (r *reporter) put(ctx context.Context, s wire.ConsumerStatus) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if r.bucket == nil {
		bucket, err := r.cfg.JetStream.KeyValue(ctx, wire.StatusBucket(r.cfg.Site))
		if err != nil {
			return err
		}
		r.bucket = bucket
	}
	value, err := s.Encode()
	if err != nil {
		return err
	}
	_, err = r.bucket.Put(ctx, r.key, value)
	return err
}

// end takes the report back: another feed server reports from now on.
func (r *reporter) end(ctx context.Context) {
	if r.bucket != nil && !r.at.IsZero() {
		_ = r.bucket.Purge(ctx, r.key) // one that stays grows old
	}
}

// asked says whether a consumer asks for messages, or did so lately.
func asked(info *jetstream.ConsumerInfo, now time.Time) bool {
	recent := func(at *time.Time) bool { return at != nil && now.Sub(*at) < idleAfter }
	return info.NumWaiting > 0 || recent(info.Delivered.Last) || recent(info.AckFloor.Last)
}
