// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"math"
	"time"

	"github.com/substorm/substorm/feed-server/hub"
	"github.com/substorm/substorm/internal/wire"
)

const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// source is one stream that a connection reads.
type source struct {
	stream string
	// telemetry says which of the token's places it moves.
	telemetry bool
	cursor    *hub.Cursor
	// wait is what to wait for if there was nothing, and again until when after an error.
	wait  hub.Wait
	again time.Time
	pause time.Duration
	// fallback is set while mode All is further behind than it may be.
	fallback *fallback
	// at is when the stream took what was given last, or the source was opened.
	at time.Time
}

// open makes the sources of a connection: one if both kinds of messages are in one stream. Errors:
// see hub.Hub.Cursor.
func (s *Session) open(ctx context.Context) error {
	add := func(name string, telemetry bool, token wire.ResumeToken) error {
		c, err := s.cfg.Hub(name).Cursor(ctx, token, s.cfg.Slots, s.wanted)
		if err != nil {
			return err
		}
		src := &source{stream: name, telemetry: telemetry, cursor: c, at: time.Now()}
		s.sources = append(s.sources, src)
		epoch, next := c.Place()
		if token.Epoch == "" {
			token = placeBefore(epoch, next, 0)
		}
		*s.placeOf(src) = token
		return nil
	}
	if s.cfg.Notices != "" && s.cfg.Notices != s.cfg.Telemetry {
		if err := add(s.cfg.Notices, false, s.cfg.Token.Notices); err != nil {
			return err
		}
	}
	if s.cfg.Telemetry != "" {
		return add(s.cfg.Telemetry, true, s.cfg.Token.Telemetry)
	}
	return nil
}

// wanted reports whether the client may have a message now. It is asked again for messages that
// waited: the client's rights may have become narrower.
func (s *Session) wanted(m *hub.Message) bool { return s.cfg.Filter().Wants(m, time.Now()) }

// placeOf returns where a source is in the token.
func (s *Session) placeOf(src *source) *wire.ResumeToken {
	if src.telemetry {
		return &s.token.Telemetry
	}
	return &s.token.Notices
}

// placeBefore is the place before a datagram, or before a whole message.
func placeBefore(epoch string, sequence uint64, index uint32) wire.ResumeToken {
	if index > 0 {
		return wire.ResumeToken{Epoch: epoch, Sequence: sequence, Index: index - 1}
	}
	return wire.ResumeToken{Epoch: epoch, Sequence: sequence - min(sequence, 1), Index: math.MaxUint32}
}

// poll asks a source, unless it failed a moment ago. Ok is false where nothing
// came.
func (s *Session) poll(src *source, most hub.Most, now time.Time) (hub.Batch, bool) {
	src.wait = hub.Wait{}
	if now.Before(src.again) {
		return hub.Batch{}, false
	}
	b, wait, ok, err := src.cursor.Poll(most)
	if err != nil {
		src.pause = min(max(firstPause, 2*src.pause), lastPause)
		src.again = now.Add(src.pause)
		s.cfg.Logger.Debug("cannot read a stream; retrying", "stream", src.stream, "error", err)
		return hub.Batch{}, false
	}
	src.wait, src.again, src.pause = wait, time.Time{}, 0
	return b, ok
}

// idle waits until one of the sources may have something, or a moment comes (unless
// it is zero). Error: ctx's.
func (s *Session) idle(ctx context.Context, until time.Time) error {
	for _, src := range s.sources {
		until = hub.Sooner(until, src.again)
	}
	var moment <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		moment = t.C
	}
	var came [2]<-chan struct{}
	for i, src := range s.sources {
		came[i] = src.wait.Normal
		if s.urgent {
			came[i] = src.wait.Urgent
		}
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-came[0]:
	case <-came[1]:
	case <-moment:
	}
	return nil
}
