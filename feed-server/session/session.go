// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/substorm/substorm/feed-server/hub"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// batchBytes is what is written at a time, where the client takes it quickly:
	// what a connection has in memory, beside what the kernel holds for it.
	batchBytes = 256 << 10
	// slowBytes is written at a time where the client is slow, so that each write
	// ends before its deadline.
	slowBytes = 16 << 10
	// slowWrite and quickWrite halve and double what is written at a time.
	slowWrite, quickWrite = 2 * time.Second, 200 * time.Millisecond
	// batchEntries bounds what is written at a time in number.
	batchEntries = 512
	// gatherFor is how soon after a write the next one follows at the earliest, where
	// nothing waited meanwhile: what comes more often is written together, since each
	// write costs the kernel as much as some hundred messages cost us.
	gatherFor = 4 * time.Millisecond
	// Beat is how long a connection may be without a write: then its place is sent.
	Beat = 15 * time.Second
)

// Meter counts a consumer's messages by what becomes of them. Any number of goroutines may call it.
type Meter interface {
	// Given is called for each write: so many messages, in so many bytes.
	Given(entries []Entry, bytes int)
	// Dropped counts what is not given: datagrams and notices by "Replaced" or
	// "Sampled".
	Dropped(reason string, count uint64)
	// Gap counts a gap record and the messages that it is about.
	Gap(reason wire.GapReason, count uint64, now time.Time)
}

// Config is the configuration of a connection.
type Config struct {
	// Consumer is the FeedConsumer.
	Consumer string
	Flow     wire.FlowEntry
	// Notices and Telemetry are the streams of each kind of message; empty: none are given. They
	// may be one.
	Notices, Telemetry string
	// Token is where to go on; its zero places are the newest.
	Token wire.FeedToken

	Hub func(stream string) *hub.Hub
	// Slots bound how many connections read the streams themselves at a time.
	Slots      *semaphore.Weighted
	Priorities *Priorities
	// Filter is what the connection may have now.
	Filter func() *Filter
	Meter  Meter
	// Write writes entries to the client, and returns the number of bytes; without entries it
	// writes only the place. It takes as long as the client does.
	Write  func(ctx context.Context, entries []Entry, place wire.FeedToken) (bytes int, err error)
	Logger *slog.Logger
}

// Session is one connection.
type Session struct {
	cfg     Config
	urgent  bool
	sources []*source
	pace    *pace
	// token is the place up to which everything was taken from the sources.
	token wire.FeedToken
	// most bytes are written at a time.
	most int
	// wrote is when something was last sent to the client. Before the first write it has no place
	// to resume from: it gets one at once if there is nothing else to send.
	wrote time.Time

	mu sync.Mutex // guards what others ask of a running session
	// behind is where the sources are, as far as it was written or waits in queue.
	behind []reached
	queue  queue
	place  wire.FeedToken
}

// reached is where a source is, and when the stream took what came before that: of
// what was there when the connection began, the moment of that.
type reached struct {
	hub.Position
	at time.Time
}

// New opens a connection's place in its streams. Close it. Errors: hub.ErrNoPlace;
// ctx's, while a stream is not there.
func New(ctx context.Context, cfg Config) (*Session, error) {
	s := &Session{cfg: cfg, urgent: cfg.Flow.Priority == wire.PriorityUrgent, pace: newPace(cfg.Flow.MaxBytesPerSecond), most: batchBytes}
	if err := s.open(ctx); err != nil {
		s.Close()
		return nil, err
	}
	s.place = s.token
	s.notePositions() // a client that never takes anything is behind from here
	var err error
	switch {
	case cfg.Flow.Mode == wire.FlowLatest || cfg.Flow.Mode == wire.FlowSample:
		s.queue, err = newConflating(time.Duration(cfg.Flow.IntervalMillis)*time.Millisecond, s.urgent)
	case s.urgent:
		s.queue = &urgentQueue{}
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close gives back what the session holds.
func (s *Session) Close() {
	for _, src := range s.sources {
		src.cursor.Close()
	}
}

// Run gives the client what comes until ctx ends or a write fails. It returns
// ctx's cause, or Write's error.
func (s *Session) Run(ctx context.Context) error {
	if s.queue != nil {
		return s.runQueue(ctx)
	}
	return s.runAll(ctx)
}

// runAll gives everything: what the client does not take yet waits in the stream.
func (s *Session) runAll(ctx context.Context) error {
	var entries []Entry
	for {
		now := time.Now()
		if wait := s.pace.wait(now); wait > 0 {
			if err := sleep(ctx, wait); err != nil {
				return err
			}
			continue
		}
		var looked bool
		entries, looked = s.gather(entries, now)
		switch {
		case len(entries) > 0:
			s.cfg.Priorities.Yield(ctx)
			if err := s.write(ctx, entries, s.token); err != nil {
				return err
			}
			s.notePositions()
		case looked: // nothing of what came is wanted
			s.notePositions()
		default:
			err := s.beatOr(ctx, now, s.token, func(until time.Time) error { return s.idle(ctx, until) })
			if err == nil {
				if soon := gatherFor - time.Since(s.wrote); soon > 0 {
					err = sleep(ctx, soon)
				}
			}
			if err != nil {
				return err
			}
		}
	}
}

// gather takes what comes next in the sources, each in its turn. Looked: something came, wanted or
// not.
func (s *Session) gather(into []Entry, now time.Time) (entries []Entry, looked bool) {
	clear(into)
	entries = into[:0]
	bytes := s.pace.most(s.most)
	// The turn of the one that was last is first next time, also where the first one
	// leaves no space for it.
	defer s.turn()
	for _, src := range s.sources {
		most := hub.Most{Messages: batchEntries - len(entries), Bytes: bytes}
		if bytes <= 0 || most.Messages <= 0 {
			return entries, true
		}
		if src.fallback != nil {
			begin := len(entries)
			var came bool
			entries, came = s.fallBack(src, entries, most, now)
			looked = looked || came
			for _, e := range entries[begin:] {
				bytes -= len(e.Payload())
			}
			continue
		}
		b, ok := s.poll(src, most, now)
		if !ok {
			continue
		}
		looked = true
		if b.Missing != nil {
			s.advancePlace(src, b)
			entries = append(entries, s.record(s.missing(src, *b.Missing, now)))
			continue
		}
		if s.tooFarBehind(b, now) {
			src.fallback = newFallback()
			s.takeInto(src, b, now)
			continue
		}
		for _, m := range b.Messages {
			*s.placeOf(src) = placeAfter(b.Epoch, m)
			entries = append(entries, Entry{Message: m, Token: s.token})
			bytes -= len(m.Data)
			src.at = m.At
		}
		if len(b.Messages) == 0 || b.Messages[len(b.Messages)-1].Sequence+1 < b.Next {
			s.advancePlace(src, b)
			if len(entries) > 0 { // messages behind the last one are not wanted
				entries[len(entries)-1].Token = s.token
			}
		}
	}
	return entries, looked
}

// turn has the source that was last be the first.
func (s *Session) turn() {
	if n := len(s.sources); n > 1 {
		s.sources[0], s.sources[n-1] = s.sources[n-1], s.sources[0]
	}
}

// advancePlace moves a source's place to before what comes next.
func (s *Session) advancePlace(src *source, b hub.Batch) {
	if b.Next > 0 {
		*s.placeOf(src) = placeBefore(b.Epoch, b.Next, 0)
	}
}

// placeAfter is the place behind a whole message.
func placeAfter(epoch string, m *hub.Message) wire.ResumeToken {
	return placeBefore(epoch, m.Sequence+1, 0)
}

// write gives the client entries, and learns how quickly it takes them.
func (s *Session) write(ctx context.Context, entries []Entry, place wire.FeedToken) error {
	began := time.Now()
	bytes, err := s.cfg.Write(ctx, entries, place)
	if err != nil {
		return err
	}
	now := time.Now()
	switch took := now.Sub(began); {
	case took > slowWrite:
		s.most = max(slowBytes, s.most/2)
	case took < quickWrite:
		s.most = min(batchBytes, 2*s.most)
	}
	s.wrote = now
	s.pace.wrote(bytes, now)
	if len(entries) > 0 {
		s.cfg.Meter.Given(entries, bytes)
	}
	s.mu.Lock()
	s.place = place
	s.mu.Unlock()
	return nil
}

// notePositions notes where the sources are: all before that was written, waits in the queue
// or is not wanted.
func (s *Session) notePositions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behind = s.behind[:0]
	for _, src := range s.sources {
		s.behind = append(s.behind, reached{src.cursor.Position(), src.at})
	}
}

// beatOr calls wait, but no longer than until the next beat is due.
func (s *Session) beatOr(ctx context.Context, now time.Time, place wire.FeedToken, wait func(until time.Time) error) error {
	if due := s.wrote.Add(Beat); now.Before(due) {
		return wait(due)
	}
	return s.write(ctx, nil, place)
}

// Lag is how far the client is behind the newest message.
func (s *Session) Lag() hub.Lag {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sum hub.Lag
	if s.queue != nil {
		sum = s.queue.lag()
	}
	for _, p := range s.behind {
		l := p.Lag()
		if l.Messages > 0 && l.Since.IsZero() {
			l.Since = p.at // a better value would need a question to the stream
		}
		sum = sum.Plus(l)
	}
	return sum
}

// Place is the token that the client was given last.
func (s *Session) Place() wire.FeedToken {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.place
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
