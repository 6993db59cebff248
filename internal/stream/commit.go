// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/substorm/substorm/internal/retry"
)

const (
	// MaxGroup is how many messages of a Committer are on their way at most: as many as the
	// server takes in one atomic batch (ADR-50).
	MaxGroup = 1000
	// maxGroupBytes bounds a group, so that its commit does not take long.
	maxGroupBytes = 8 << 20
	// minBatch is where a synced atomic batch, which costs as much as some twenty messages whatever its length, becomes
	// cheaper than messages one by one, which cost a sync each (BenchmarkCommit: even between 16 and 32).
	minBatch = 24
	// maxBatchedMessage is the average size from which messages are better off one by one: a batch is written twice
	// (BenchmarkCommit: even at 64 KiB).
	maxBatchedMessage = 32 << 10
	// noBatchesFor is how long batches are not tried after the stream said that it takes none.
	noBatchesFor = time.Minute

	minRetry = 50 * time.Millisecond
	maxRetry = 2 * time.Second
)

// Headers of an atomic batch (ADR-50).
const (
	headerBatchID       = "Nats-Batch-Id"
	headerBatchSequence = "Nats-Batch-Sequence"
	headerBatchCommit   = "Nats-Batch-Commit"
)

func (c *Committer) run() {
	defer close(c.stopped)
	for {
		group := c.next()
		if group == nil {
			return
		}
		c.commit(group)
	}
}

// commit tries until every message of the group is settled.
func (c *Committer) commit(group []*entry) {
	wait := minRetry
	for len(group) > 0 {
		if c.ctx.Err() != nil {
			c.settleAll(group, fmt.Errorf("publish to %s: closed before it was acknowledged: %w", c.cfg.Stream, ErrUnavailable))
			return
		}
		left, err := c.try(group)
		if len(left) < len(group) {
			wait = minRetry
		}
		if group = left; len(group) == 0 {
			c.available(true, nil)
			return
		}
		for _, e := range group {
			e.tried = true
		}
		c.available(false, err)
		retry.Sleep(c.ctx, wait)
		wait = min(2*wait, maxRetry)
	}
}

// try sends the group once. It returns the messages to be tried again, and why.
func (c *Committer) try(group []*entry) ([]*entry, error) {
	if err := c.waitConnected(); err != nil {
		return group, err
	}
	if c.worthBatch(group) {
		verdict, err := c.tryBatch(group)
		if verdict != refused {
			return left(group, verdict), err
		}
		// One message spoils a batch: a duplicate, one that is too large, or the one that fills the stream. Each
		// gets a verdict of its own.
		c.metrics.batchesRefused.Inc()
	}
	return c.trySingly(group)
}

func left(group []*entry, v verdict) []*entry {
	if v == again {
		return group
	}
	return nil
}

func (c *Committer) worthBatch(group []*entry) bool {
	if len(group) < max(2, c.cfg.minBatch) || time.Now().Before(c.noBatchesUntil) {
		return false
	}
	size := int64(0)
	for _, e := range group {
		size += e.size
	}
	return size/int64(len(group)) <= maxBatchedMessage
}

// waitConnected waits as long as the connection is down. Errors: the connection is closed for good, or c is.
func (c *Committer) waitConnected() error {
	if c.nc.IsConnected() {
		return nil
	}
	c.available(false, nats.ErrDisconnected)
	return WaitConnected(c.ctx, c.nc)
}

// tryBatch sends the group as one atomic batch.
func (c *Committer) tryBatch(group []*entry) (verdict, error) {
	x := c.replies.expect(1)
	defer c.replies.forget(x)
	id := nuid.Next()
	for i, e := range group {
		reply := ""
		last := i == len(group)-1
		if last {
			reply = x.subject(0)
		}
		if err := c.sendBatched(e.msg, reply, id, i+1, last); err != nil {
			return publishVerdict(err), err
		}
	}
	r, err := c.await(x)
	if err != nil {
		return again, err
	}
	ack, v, err := parseAck(r.msg, c.cfg.Stream)
	if v == taken && ack.count != len(group) {
		v, err = again, fmt.Errorf("%d of %d messages of a batch were acknowledged", ack.count, len(group))
	}
	if v != taken {
		if ack.code == codeBatchesDisabled {
			c.noBatchesUntil = time.Now().Add(noBatchesFor)
		}
		if v == full {
			v = refused // some of the messages may still fit
		}
		return v, err
	}
	c.metrics.batches.Inc()
	first := ack.sequence - uint64(len(group)) + 1
	for i, e := range group {
		c.settle(e, Ack{Sequence: first + uint64(i)}, nil)
	}
	return taken, nil
}

// sendBatched writes a message of a batch. Its headers are as before when it returns.
func (c *Committer) sendBatched(msg *nats.Msg, reply, id string, sequence int, commit bool) error {
	if msg.Header == nil {
		msg.Header = nats.Header{}
	}
	msg.Reply = reply
	msg.Header.Set(headerBatchID, id)
	msg.Header.Set(headerBatchSequence, strconv.Itoa(sequence))
	if commit {
		msg.Header.Set(headerBatchCommit, "1")
	}
	err := c.nc.PublishMsg(msg)
	msg.Header.Del(headerBatchID)
	msg.Header.Del(headerBatchSequence)
	msg.Header.Del(headerBatchCommit)
	return err
}

// trySingly sends the messages one after the other, without waiting for each answer.
func (c *Committer) trySingly(group []*entry) ([]*entry, error) {
	x := c.replies.expect(len(group))
	defer c.replies.forget(x)
	settled := make([]bool, len(group))
	var why error
	sent := 0
	for i, e := range group {
		e.msg.Reply = x.subject(i)
		err := c.nc.PublishMsg(e.msg)
		if err == nil {
			sent++
			continue
		}
		if publishVerdict(err) == again {
			why = err
			break
		}
		c.settle(e, Ack{}, fmt.Errorf("publish to %s: %w: %w", c.cfg.Stream, ErrRefused, err))
		settled[i] = true
	}
	for range sent {
		r, err := c.await(x)
		if err != nil {
			why = err
			break
		}
		e := group[r.index]
		ack, v, err := parseAck(r.msg, c.cfg.Stream)
		switch v {
		case again:
			why = err
			continue
		case taken:
			c.settle(e, Ack{Sequence: ack.sequence, Duplicate: ack.duplicate}, nil)
		case full:
			// A publisher that gets ErrFull publishes the message again under another id. The stream may have it
			// from an earlier try, and drops no duplicates of that time any more.
			if e.tried {
				why = fmt.Errorf("%w: %w", ErrFull, err)
				continue
			}
			c.settle(e, Ack{}, fmt.Errorf("publish to %s: %w: %w", c.cfg.Stream, ErrFull, err))
		case refused:
			c.settle(e, Ack{}, fmt.Errorf("publish to %s: %w: %w", c.cfg.Stream, ErrRefused, err))
		}
		settled[r.index] = true
	}
	var unsettled []*entry
	for i, e := range group {
		if !settled[i] {
			unsettled = append(unsettled, e)
		}
	}
	return unsettled, why
}

// publishVerdict reads an error of the connection itself.
func publishVerdict(err error) verdict {
	for _, permanent := range []error{nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrHeadersNotSupported, nats.ErrBadHeaderMsg} {
		if errors.Is(err, permanent) {
			return refused
		}
	}
	return again
}

func (c *Committer) settleAll(group []*entry, err error) {
	for _, e := range group {
		c.settle(e, Ack{}, err)
	}
}

// available logs once when the stream stops to answer, once when messages wait as it is full, and once when it takes
// them again.
func (c *Committer) available(up bool, why error) {
	if full := errors.Is(why, ErrFull); full != c.full {
		c.full = full
		if full {
			c.log.Error("the stream is full; a message that it may already hold, and all behind it, wait until it is trimmed or enlarged", "error", why)
		}
	}
	if up != c.down {
		return
	}
	c.down = !up
	if up {
		c.metrics.up.Set(1)
		c.log.Info("the stream accepts messages again")
		return
	}
	c.metrics.up.Set(0)
	c.log.Warn("the stream does not accept messages; they wait", "error", why)
}
