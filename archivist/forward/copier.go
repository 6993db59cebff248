// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// readWait and lookWait are how long messages are collected, to ask less often.
	readWait  = time.Second
	lookWait  = 2 * time.Second
	lookBatch = 1000

	firstPause = 500 * time.Millisecond
	lastPause  = 15 * time.Second
)

// copier sends the copy of one instrument.
type copier struct {
	cfg        *Config
	instrument string
	entry      wire.ForwardEntry
	reports    jetstream.KeyValue
	cell       *stream.Cell
	log        *slog.Logger

	mu        sync.Mutex
	cursor    wire.ForwardCursor
	lastError string
	window    window

	// saving guards cell and saved.
	saving sync.Mutex
	saved  time.Time
}

// item is a message that is to be sent.
type item struct {
	sequence   uint64
	receivedAt time.Time
	// at is when the stream took it, by the server's clock; readAt when we did.
	at, readAt time.Time
	weight     wire.ForwardTotals
	// notice of an object; of telemetry, data is the message.
	notice wire.Notice
	data   []byte
}

// way is how a protocol is copied.
type way interface {
	// follows returns the stream and the subjects that are followed. HeadersOnly: headers
	// say what a message weighs.
	follows(site, instrument string) stream.ReaderConfig
	// space is how many messages are in hand at a time, and settle how long they are
	// held so that they can be put in the order in which they were received.
	space() (messages int, settle time.Duration)
	// item returns what a message asks to be sent, and false for nothing. Errors:
	// wire.ErrNewerFormat.
	item(m stream.Message) (item, bool, error)
	// send sends the first of some items, and returns how many. It returns an
	// error where the next one must be tried again; errGone where it cannot be
	// sent, ever, and errDuplicate where it need not be.
	send(ctx context.Context, items []item) (done int, err error)
}

var (
	// errGone: the bytes are not in the store any more, or not those that were received.
	errGone = errors.New("it is left out")
	// errDuplicate: the object was marked as a duplicate of one that came before.
	errDuplicate = errors.New("it duplicates an earlier one")
)

func (c *copier) way() way {
	if c.entry.Protocol == wire.ProtocolUDP {
		return &datagrams{c}
	}
	return &objects{copier: c}
}

// run sends until ctx ends.
func (c *copier) run(ctx context.Context) {
	reporting := make(chan struct{})
	go func() {
		defer close(reporting)
		c.report(ctx)
	}()
	defer func() { <-reporting }()
	defer c.saveLast(ctx)
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, lastPause) {
		began := time.Now()
		err := c.follow(ctx, c.way())
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > lastPause {
			pause = firstPause
		}
		c.noteFailure(err)
		if !wait(ctx, pause) {
			return
		}
	}
}

// follow sends what comes until something other than the old server fails.
func (c *copier) follow(ctx context.Context, w way) error {
	epoch, err := c.begin(ctx, w)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ahead := w.follows(c.cfg.Site, c.instrument)
	ahead.Epoch = epoch
	sending := ahead
	sending.HeadersOnly = false
	c.mu.Lock()
	sending.Start, ahead.Start = c.cursor.Next, c.cursor.SeenNext
	c.mu.Unlock()
	counting := make(chan error, 1)
	go func() {
		err := c.lookAhead(ctx, w, stream.NewReader(c.cfg.JetStream, ahead))
		cancel()
		counting <- err
	}()
	err = c.sendAll(ctx, w, stream.NewReader(c.cfg.JetStream, sending))
	cancel()
	if err2 := <-counting; errors.Is(err, context.Canceled) {
		err = err2
	}
	return err
}

// sendAll sends what the reader finds.
func (c *copier) sendAll(ctx context.Context, w way, reader *stream.Reader) error {
	space, settle := w.space()
	for {
		if err := c.fill(ctx, w, reader, space); err != nil {
			return err
		}
		c.mu.Lock()
		ready := c.window.ready(time.Now(), settle, space)
		c.mu.Unlock()
		if err := c.sendItems(ctx, w, ready); err != nil {
			return err
		}
		if err := c.notePosition(ctx); err != nil {
			return err
		}
	}
}

// fill reads as much as there is space for.
func (c *copier) fill(ctx context.Context, w way, reader *stream.Reader, space int) error {
	c.mu.Lock()
	space -= len(c.window.items)
	c.mu.Unlock()
	if space <= 0 {
		return nil
	}
	messages, err := reader.Next(ctx, space, readWait)
	if err != nil {
		return err
	}
	now := time.Now()
	next, caughtUp := reader.Position()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range messages {
		i, ok, err := w.item(m)
		if err != nil {
			return fmt.Errorf("message %d on %s: %w", m.Sequence, m.Subject, err)
		}
		if ok {
			i.sequence, i.at, i.readAt = m.Sequence, m.At, now
			c.window.add(i)
		}
	}
	c.window.next, c.window.caughtUp = next, caughtUp
	return nil
}

// sendItems sends some items, and tries for as long as it takes.
func (c *copier) sendItems(ctx context.Context, w way, items []item) error {
	for pause := firstPause; len(items) > 0; {
		done, err := w.send(ctx, items)
		if done > 0 {
			pause = firstPause
			if err := c.noteSent(ctx, items[:done]); err != nil {
				return err
			}
			items = items[done:]
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errGone), errors.Is(err, errDuplicate):
			if err := c.leaveOut(ctx, items[0], err); err != nil {
				return err
			}
			items = items[1:]
		case err != nil:
			c.noteFailure(err)
			if !wait(ctx, pause) {
				return ctx.Err()
			}
			pause = min(2*pause, lastPause)
		}
	}
	return nil
}

// noteSent notes what was sent.
func (c *copier) noteSent(ctx context.Context, items []item) error {
	c.mu.Lock()
	for _, i := range items {
		c.cursor.Sent = plus(c.cursor.Sent, i.weight)
		c.cfg.Metrics.sent(c.instrument, i.weight)
	}
	c.removeDone(items...)
	recovered := c.lastError != ""
	c.lastError = ""
	c.mu.Unlock()
	if recovered {
		c.log.Info("the copy continues")
	}
	return c.save(ctx)
}

// leaveOut notes an item that is not sent, and why.
func (c *copier) leaveOut(ctx context.Context, i item, why error) error {
	c.mu.Lock()
	if errors.Is(why, errGone) {
		c.cursor.Dropped = plus(c.cursor.Dropped, i.weight)
		c.cfg.Metrics.droppedItems(c.instrument, i.weight.Items)
		c.log.Error("an object is left out of the copy", "object", i.notice.ID, "error", why)
	} else { // its equal was sent
		c.cursor.Sent = plus(c.cursor.Sent, i.weight)
	}
	c.removeDone(i)
	c.mu.Unlock()
	return c.save(ctx)
}

// removeDone takes items out of the window, and moves the cursor. The caller holds mu.
func (c *copier) removeDone(items ...item) {
	c.window.remove(items)
	c.cursor.Next, c.cursor.Done = c.window.position()
}

// lookAhead counts what there is to send, whether or not the old server takes it.
func (c *copier) lookAhead(ctx context.Context, w way, reader *stream.Reader) error {
	var l losses
	for {
		messages, err := reader.Next(ctx, lookBatch, lookWait)
		if err != nil {
			return err
		}
		var seen wire.ForwardTotals
		for _, m := range messages {
			i, ok, err := w.item(m)
			if err != nil {
				return fmt.Errorf("message %d on %s: %w", m.Sequence, m.Subject, err)
			}
			if ok {
				seen = plus(seen, i.weight)
			}
		}
		next, _ := reader.Position()
		c.mu.Lock()
		c.cursor.Seen = plus(c.cursor.Seen, seen)
		c.cursor.SeenNext = next
		c.mu.Unlock()
		if err := c.countLost(ctx, w, &l); err != nil {
			return err
		}
		if err := c.saveNowAndThen(ctx); err != nil {
			return err
		}
	}
}

// noteFailure notes why the next item is not sent yet, and says so once.
func (c *copier) noteFailure(err error) {
	c.cfg.Metrics.failed(c.instrument)
	c.mu.Lock()
	said := c.lastError
	c.lastError = err.Error()
	c.mu.Unlock()
	if said == "" {
		c.log.Warn("the copy waits", "error", err)
	}
}

// wait returns false where ctx ended. The pause varies: not all come back at once.
func wait(ctx context.Context, d time.Duration) bool {
	return retry.Sleep(ctx, d/2+rand.N(d))
}
