// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
)

// Ack says where a message lies.
type Ack struct {
	// Sequence in the stream; for a duplicate, the sequence of the message that was stored before.
	Sequence uint64
	// Duplicate: the stream held the message's id already.
	Duplicate bool
}

// CommitterConfig bounds a Committer. Zero values are the defaults.
type CommitterConfig struct {
	// Stream that must acknowledge.
	Stream string
	// MaxMessages and MaxBytes bound what is queued or on its way; default 16384 and 64 MiB. One message that is
	// larger than MaxBytes passes alone.
	MaxMessages int
	MaxBytes    int64
	// AckWait is how long an answer may take before the same is sent again; default 10 s.
	AckWait time.Duration
	// Linger is how long a message waits for others that come at the same time; default: it goes out at once.
	Linger time.Duration
	// Registerer gets the committer's metrics, labeled with the stream; default none.
	Registerer prometheus.Registerer
	// Logger hears when the stream stops and begins to take messages; default none.
	Logger *slog.Logger

	// minBatch is how many small messages are worth an atomic batch; default minBatch, or what the embedded server says.
	minBatch int
}

// Committer publishes to one stream by group commit: a lone message goes out at once; what comes while one group is on
// its way gathers and goes as the next. Each message is tried until the stream takes or refuses it, always under its own
// Nats-Msg-Id, so that it is stored at least once, and once within the stream's window for duplicates. Messages are
// sent in the order in which they were queued; those that must be tried again may come after later ones of their group.
// A message that a full stream may hold from an earlier try holds up those behind it until the stream takes messages again.
type Committer struct {
	nc      *nats.Conn
	cfg     CommitterConfig
	log     *slog.Logger
	metrics *metrics
	replies *replies

	ctx     context.Context // ends when Close has waited long enough
	cancel  context.CancelFunc
	stopped chan struct{} // closed when run has ended

	mu      sync.Mutex
	queue   []*entry
	count   int   // queued and on their way
	bytes   int64 // of those
	closing bool
	work    chan struct{} // holds a token when queue or closing changed
	space   chan struct{} // closed when count and bytes fell; nil without a waiter

	// These belong to the goroutine that commits.
	down, full     bool
	noBatchesUntil time.Time
}

// entry is a message on its way.
type entry struct {
	msg  *nats.Msg
	size int64
	at   time.Time // when it was submitted
	done func(Ack, error)
	// tried: no answer said what became of an earlier try. It may be in the stream.
	tried bool
}

// NewCommitter begins to commit to the stream over nc. Close ends it and leaves nc open.
func NewCommitter(nc *nats.Conn, cfg CommitterConfig) (*Committer, error) {
	if cfg.Stream == "" {
		return nil, errors.New("commit: no stream is named")
	}
	cfg.MaxMessages = cmp.Or(cfg.MaxMessages, 16384)
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, 64<<20)
	cfg.AckWait = cmp.Or(cfg.AckWait, 10*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.minBatch = cmp.Or(cfg.minBatch, minBatchOf(nc), minBatch)
	answers, err := listen(nc)
	if err != nil {
		return nil, fmt.Errorf("commit to %s: %w", cfg.Stream, err)
	}
	c := &Committer{
		nc: nc, cfg: cfg, log: cfg.Logger.With("stream", cfg.Stream), replies: answers,
		stopped: make(chan struct{}), work: make(chan struct{}, 1),
	}
	c.metrics = newMetrics(cfg.Registerer, cfg.Stream, c.backlog)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	go c.run()
	return c, nil
}

// Publish returns once the message is safe in the stream. Errors: ErrFull, ErrRefused, ErrClosed; ErrUnavailable where
// ctx or the committer ended first, and then the message is published all the same, if it can be. The message must not
// change before that.
func (c *Committer) Publish(ctx context.Context, msg *nats.Msg) error {
	result := make(chan error, 1)
	if err := c.Submit(ctx, msg, func(_ Ack, err error) { result <- err }); err != nil {
		return err
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("publish to %s: %w: %w", c.cfg.Stream, ErrUnavailable, ctx.Err())
	}
}

// Submit queues a message. It waits for space until ctx ends; after an error (ErrUnavailable, ErrClosed) the message is
// not queued and done is not called. Otherwise done is called once, from a goroutine that it must not hold up, with the
// errors of Publish. The message belongs to the committer until then. It needs a Nats-Msg-Id to be stored only once.
func (c *Committer) Submit(ctx context.Context, msg *nats.Msg, done func(Ack, error)) error {
	e := &entry{msg: msg, size: sizeOf(msg), at: time.Now(), done: done}
	for {
		c.mu.Lock()
		if c.closing {
			c.mu.Unlock()
			return fmt.Errorf("publish to %s: %w", c.cfg.Stream, ErrClosed)
		}
		if c.count == 0 || (c.count < c.cfg.MaxMessages && c.bytes+e.size <= c.cfg.MaxBytes) {
			c.queue = append(c.queue, e)
			c.count++
			c.bytes += e.size
			c.mu.Unlock()
			c.wake()
			return nil
		}
		if c.space == nil {
			c.space = make(chan struct{})
		}
		space := c.space
		c.mu.Unlock()
		select {
		case <-space:
		case <-c.stopped:
		case <-ctx.Done():
			return fmt.Errorf("publish to %s: no space in the queue: %w: %w", c.cfg.Stream, ErrUnavailable, ctx.Err())
		}
	}
}

// Close takes nothing more and returns once everything queued is settled. If ctx ends before, the rest is settled with
// ErrUnavailable, and ctx's error returned.
func (c *Committer) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.wake()
	var err error
	select {
	case <-c.stopped:
	case <-ctx.Done():
		c.cancel()
		<-c.stopped
		err = fmt.Errorf("close the committer to %s: %w", c.cfg.Stream, ctx.Err())
	}
	c.cancel()
	c.replies.close()
	c.metrics.unregister(c.cfg.Registerer)
	return err
}

// next takes the next group off the queue, which is nil when there is nothing left and nothing to come.
func (c *Committer) next() []*entry {
	for {
		c.linger()
		c.mu.Lock()
		if group := c.take(); group != nil || c.closing {
			c.mu.Unlock()
			return group
		}
		c.mu.Unlock()
		<-c.work
	}
}

// linger waits for others where a message waits.
func (c *Committer) linger() {
	if c.cfg.Linger == 0 {
		return
	}
	due := time.NewTimer(c.cfg.Linger)
	defer due.Stop()
	for c.mayLinger() {
		select {
		case <-due.C:
			return
		case <-c.work:
		}
	}
}

// mayLinger says whether a message waits, and no whole group of them.
func (c *Committer) mayLinger() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue) > 0 && len(c.queue) < MaxGroup && c.bytes < maxGroupBytes && !c.closing
}

// take cuts a group off the queue.
func (c *Committer) take() []*entry {
	n, size := 0, int64(0)
	for n < len(c.queue) && n < MaxGroup && (n == 0 || size+c.queue[n].size <= maxGroupBytes) {
		size += c.queue[n].size
		n++
	}
	if n == 0 {
		return nil
	}
	group := append([]*entry(nil), c.queue[:n]...)
	rest := copy(c.queue, c.queue[n:])
	clear(c.queue[rest:])
	c.queue = c.queue[:rest]
	return group
}

// settle tells the submitter what became of a message.
func (c *Committer) settle(e *entry, ack Ack, err error) {
	c.metrics.settled(err, time.Since(e.at))
	e.done(ack, err)
	c.mu.Lock()
	c.count--
	c.bytes -= e.size
	if c.space != nil {
		close(c.space)
		c.space = nil
	}
	c.mu.Unlock()
}

func (c *Committer) wake() {
	select {
	case c.work <- struct{}{}:
	default:
	}
}

func (c *Committer) backlog() (messages int, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count, c.bytes
}

// sizeOf is about what a message takes in memory.
func sizeOf(msg *nats.Msg) int64 {
	size := len(msg.Subject) + len(msg.Data)
	for name, values := range msg.Header {
		size += len(name) + 32
		for _, v := range values {
			size += len(v)
		}
	}
	return int64(size)
}
