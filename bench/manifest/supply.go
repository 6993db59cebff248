// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/bench/internal/receiver"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	gateway = "north-0"
	// holds is what the stream of notices has space for, in bytes: some minutes of the day.
	holds = 2 << 30
	// spare is space for more than what is announced of a minute, in bytes.
	spare = 128 << 20
	// within is how long the archivist may take for what is to be done when the day has come.
	within = 2 * time.Hour
	poll   = 100 * time.Millisecond
)

// supply announces the objects of a day, as gateways do.
type supply struct {
	js   jetstream.JetStream
	size size
	day  wire.Day
	// begin of the day.
	begin time.Time
	sent  uint64
}

func openSupply(ctx context.Context, js jetstream.JetStream, s size) (*supply, error) {
	name := wire.NoticeStream(receiver.SiteCode)
	notices, err := js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	cfg := notices.CachedInfo().Config
	// No notice is sent twice here, so JetStream need not remember what it took.
	cfg.MaxBytes, cfg.Duplicates = holds, time.Second
	if _, err := js.UpdateStream(ctx, cfg); err != nil {
		return nil, err
	}
	// Closed two days ago, and young enough to be compacted.
	begin := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -3)
	return &supply{js: js, size: s, day: wire.DayOf(begin), begin: begin}, nil
}

func instrumentName(i int) string { return fmt.Sprintf("mag-%04d", i) }

// minute announces what all instruments sent in a minute, once there is space for it, and
// returns when JetStream has it.
func (s *supply) minute(ctx context.Context, minute int) error {
	if err := s.space(ctx); err != nil {
		return err
	}
	for second := range 60 {
		at := s.begin.Add(time.Duration(minute)*time.Minute + time.Duration(second)*time.Second)
		for i := range s.size.instruments {
			m, err := stream.NoticeMessage(notice(i, at), gateway)
			if err != nil {
				return err
			}
			if _, err := s.js.PublishMsgAsync(m, jetstream.WithStallWait(within)); err != nil {
				return fmt.Errorf("publish a notice: %w", err)
			}
			s.sent++
		}
	}
	select {
	case <-s.js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// space waits until the stream has space: the archivist removes what it has listed.
func (s *supply) space(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		notices, err := s.js.Stream(ctx, wire.NoticeStream(receiver.SiteCode))
		if err != nil {
			return fmt.Errorf("wait until the stream of notices has space: %w", err)
		}
		if notices.CachedInfo().State.Bytes+spare < holds {
			return nil
		}
		retry.Sleep(ctx, poll)
	}
}

// notice is the notice of a second's object of an instrument. Each instrument has its moment within the second.
func notice(i int, at time.Time) wire.Notice {
	name := instrumentName(i)
	at = at.Add(time.Duration(i)*time.Millisecond + time.Duration(at.Unix()*7919%1_000_000))
	digest := wire.Digest(sha256.Sum256([]byte(name + at.String())))
	key := wire.RawKey(receiver.SiteCode, name, at, digest)
	return wire.Notice{Site: receiver.SiteCode, Instrument: name, Record: wire.Record{
		ID: key, Key: key, Size: 4096 + int64(digest[0]), Digest: digest, MediaType: "application/octet-stream", State: wire.StateCurrent,
		ReceivedAt: at, TimeSource: wire.TimeSourceReceived, Completeness: wire.CompletenessUnverified,
		Source: fmt.Sprintf("192.0.2.%d:%d", i%250+1, 30_000+i), Port: uint16(10_000 + i), Gateway: gateway, Incarnation: "9f2c41d07ab35e68",
	}}
}

// listed waits until everything that was announced is in closed parts.
func (s *supply) listed(ctx context.Context) error {
	notices, err := s.js.Stream(ctx, wire.NoticeStream(receiver.SiteCode))
	if err != nil {
		return err
	}
	info, err := notices.Info(ctx)
	if err != nil {
		return err
	}
	if info.State.LastSeq != s.sent {
		return fmt.Errorf("%d notices were sent, and JetStream took %d", s.sent, info.State.LastSeq)
	}
	return s.await(ctx, "closed parts list all", wire.NoticeCursorKey, func(value []byte) (bool, error) {
		cursor, err := wire.Decode[wire.StreamCursor](value)
		return cursor.Next > s.sent, err
	})
}

// compacted waits until the day is one file of each instrument, and its parts are gone.
func (s *supply) compacted(ctx context.Context) error {
	return s.await(ctx, "the day is compacted", wire.CompactCursorKey, func(value []byte) (bool, error) {
		cursor, err := wire.Decode[wire.CompactCursor](value)
		return cursor.Through >= s.day, err
	})
}

// await waits until a cursor is where it is to be.
func (s *supply) await(ctx context.Context, what, key string, there func([]byte) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	cursors, err := s.js.KeyValue(ctx, wire.CursorBucket(receiver.SiteCode))
	if err != nil {
		return err
	}
	for {
		e, err := cursors.Get(ctx, key)
		if err == nil {
			var ok bool
			if ok, err = there(e.Value()); ok || err != nil {
				return err
			}
		} else if !errors.Is(err, jetstream.ErrKeyNotFound) {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
		if !retry.Sleep(ctx, poll) {
			return fmt.Errorf("wait until %s: %w", what, ctx.Err())
		}
	}
}

// countIndex counts the bytes that are written into the index.
func countIndex(nc *nats.Conn) (func() int64, error) {
	var bytes atomic.Int64
	subject := "$KV." + wire.IndexBucket(receiver.SiteCode) + ".>"
	s, err := nc.Subscribe(subject, func(m *nats.Msg) { bytes.Add(int64(len(m.Data) + len(strings.TrimSpace(m.Subject)))) })
	if err != nil {
		return nil, fmt.Errorf("hear the index: %w", err)
	}
	if err := s.SetPendingLimits(-1, -1); err != nil {
		return nil, err
	}
	return bytes.Load, nc.Flush()
}
