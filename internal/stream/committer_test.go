// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// submitAll submits messages at once and returns what became of each.
func submitAll(t *testing.T, c *Committer, msgs []*nats.Msg) ([]Ack, []error) {
	t.Helper()
	acks, errs := make([]Ack, len(msgs)), make([]error, len(msgs))
	var settled sync.WaitGroup
	settled.Add(len(msgs))
	for i, m := range msgs {
		err := c.Submit(t.Context(), m, func(a Ack, err error) {
			acks[i], errs[i] = a, err
			settled.Done()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	settled.Wait()
	return acks, errs
}

func numbered(from, to int) []*nats.Msg {
	var msgs []*nats.Msg
	for i := from; i < to; i++ {
		msgs = append(msgs, message(id(i), []byte("x")))
	}
	return msgs
}

// checkOnce expects each of the ids once in the stream, and no other.
func checkOnce(t *testing.T, s jetstream.Stream, want int) {
	t.Helper()
	ids := idsIn(t, s)
	for i := range want {
		if n := ids[id(i)]; n != 1 {
			t.Errorf("%s is %d times in the stream, want once", id(i), n)
		}
	}
	if len(ids) != want {
		t.Errorf("the stream holds %d ids, want %d: %v", len(ids), want, ids)
	}
}

// block keeps the committer busy with a lone message whose done waits, so that what is submitted meanwhile is one group.
func block(t *testing.T, c *Committer) (release func()) {
	t.Helper()
	holding, released := make(chan struct{}), make(chan struct{})
	err := c.Submit(t.Context(), &nats.Msg{Subject: "t.block"}, func(Ack, error) { close(holding); <-released })
	if err != nil {
		t.Fatal(err)
	}
	<-holding
	return func() { close(released) }
}

func TestCommitter(t *testing.T) {
	freshStream := func(t *testing.T, change func(*jetstream.StreamConfig)) (*nats.Conn, jetstream.Stream) {
		t.Helper()
		nc := connect(t, testenv.NATS(t, testenv.NATSOptions{Unsynced: true}))
		return nc, makeStream(t, nc, change)
	}

	t.Run("a lone message", func(t *testing.T) {
		nc, s := freshStream(t, nil)
		c := newCommitter(t, nc, nil)
		if err := c.Publish(t.Context(), message(id(0), []byte("x"))); err != nil {
			t.Fatal(err)
		}
		checkOnce(t, s, 1)
	})

	t.Run("what gathers goes as batches, in order", func(t *testing.T) {
		nc, s := freshStream(t, nil)
		c := newCommitter(t, nc, nil)
		release := block(t, c)
		wait := make(chan struct{})
		var acks []Ack
		var errs []error
		go func() { acks, errs = submitAll(t, c, numbered(0, 2500)); close(wait) }()
		for n := 0; n < 2501; n, _ = c.backlog() {
		}
		release()
		<-wait
		for i := range acks {
			if errs[i] != nil || acks[i].Sequence != uint64(i)+2 || acks[i].Duplicate {
				t.Fatalf("message %d: %+v, %v; want sequence %d", i, acks[i], errs[i], i+2)
			}
		}
		if n := testutil.ToFloat64(c.metrics.batches); n != 3 {
			t.Errorf("%v batches, want 3", n)
		}
		for i := range 2500 {
			m, err := s.GetMsg(t.Context(), uint64(i)+2)
			if err != nil || m.Header.Get(wire.HeaderMessageID) != id(i) {
				t.Fatalf("sequence %d is %v (%v), want %s", i+2, m, err, id(i))
			}
		}
	})

	t.Run("one duplicate does not spoil a batch", func(t *testing.T) {
		nc, s := freshStream(t, nil)
		c := newCommitter(t, nc, func(cfg *CommitterConfig) { cfg.minBatch = 2 })
		if err := c.Publish(t.Context(), message(id(7), []byte("x"))); err != nil {
			t.Fatal(err)
		}
		release := block(t, c)
		wait := make(chan struct{})
		var acks []Ack
		var errs []error
		go func() {
			acks, errs = submitAll(t, c, append(numbered(0, 20), message(id(3), []byte("twice in the batch"))))
			close(wait)
		}()
		for n := 0; n < 22; n, _ = c.backlog() {
		}
		release()
		<-wait
		for i := range acks {
			if errs[i] != nil || acks[i].Duplicate != (i == 7 || i == 20) {
				t.Errorf("message %d: %+v, %v", i, acks[i], errs[i])
			}
		}
		if acks[7].Sequence != 1 {
			t.Errorf("the duplicate's sequence is %d, want 1", acks[7].Sequence)
		}
		if n := testutil.ToFloat64(c.metrics.batchesRefused); n != 1 {
			t.Errorf("%v batches refused, want 1", n)
		}
		ids := idsIn(t, s)
		delete(ids, "") // the blocking message
		if len(ids) != 20 || ids[id(7)] != 1 || ids[id(3)] != 1 {
			t.Errorf("the stream holds %v", ids)
		}
	})

	t.Run("a message too large is refused alone", func(t *testing.T) {
		nc, s := freshStream(t, func(cfg *jetstream.StreamConfig) { cfg.MaxMsgSize = 1000 })
		c := newCommitter(t, nc, func(cfg *CommitterConfig) { cfg.minBatch = 2 })
		release := block(t, c)
		wait := make(chan struct{})
		var errs []error
		go func() {
			msgs := numbered(0, 10)
			msgs[4].Data = make([]byte, 2000)  // more than the stream takes
			msgs[8].Data = make([]byte, 2<<20) // more than the server takes
			_, errs = submitAll(t, c, msgs)
			close(wait)
		}()
		for n := 0; n < 11; n, _ = c.backlog() {
		}
		release()
		<-wait
		for i, err := range errs {
			if bad := i == 4 || i == 8; errors.Is(err, ErrRefused) != bad || (err != nil) != bad {
				t.Errorf("message %d: %v", i, err)
			}
		}
		if ids := idsIn(t, s); ids[id(4)] != 0 || ids[id(8)] != 0 || len(ids) != 9 {
			t.Errorf("the stream holds %v", ids)
		}
	})

	t.Run("a full stream takes what fits and says so of the rest", func(t *testing.T) {
		nc, s := freshStream(t, func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs = 50 })
		c := newCommitter(t, nc, func(cfg *CommitterConfig) { cfg.minBatch = 2 })
		_, errs := submitAll(t, c, numbered(0, 80))
		stored := idsIn(t, s)
		for i, err := range errs {
			switch {
			case err == nil && stored[id(i)] != 1:
				t.Errorf("%s is acknowledged and not stored", id(i))
			case err != nil && !errors.Is(err, ErrFull):
				t.Errorf("%s: %v, want ErrFull", id(i), err)
			case err != nil && stored[id(i)] != 0:
				t.Errorf("%s is refused and stored", id(i))
			case err != nil && CauseOf(err) != wire.CauseStreamFull:
				t.Errorf("%s: cause %s", id(i), CauseOf(err))
			}
		}
		if len(stored) != 50 {
			t.Errorf("%d messages stored, want 50", len(stored))
		}
	})

	t.Run("a full stream by bytes", func(t *testing.T) {
		nc, _ := freshStream(t, func(cfg *jetstream.StreamConfig) { cfg.MaxBytes = 100_000 })
		c := newCommitter(t, nc, nil)
		var err error
		for i := 0; err == nil && i < 20; i++ {
			err = c.Publish(t.Context(), message(id(i), make([]byte, 10_000)))
		}
		if !errors.Is(err, ErrFull) {
			t.Errorf("the stream's end: %v, want ErrFull", err)
		}
	})

	t.Run("messages wait for others", func(t *testing.T) {
		nc, s := freshStream(t, nil)
		c := newCommitter(t, nc, func(cfg *CommitterConfig) { cfg.Linger = time.Hour })
		const more = 500
		settled := make(chan error, MaxGroup+more)
		for _, m := range numbered(0, MaxGroup+more) {
			if err := c.Submit(t.Context(), m, func(_ Ack, err error) { settled <- err }); err != nil {
				t.Fatal(err)
			}
		}
		for range MaxGroup { // a whole group waits for no more
			if err := <-settled; err != nil {
				t.Error(err)
			}
		}
		for n := 0; n != more; n, _ = c.backlog() { // the others wait
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		checkOnce(t, s, MaxGroup+more)
		if n := testutil.ToFloat64(c.metrics.batches); n != 2 {
			t.Errorf("%v batches, want 2", n)
		}
	})

	t.Run("a stream without batches", func(t *testing.T) {
		nc, s := freshStream(t, func(cfg *jetstream.StreamConfig) { cfg.AllowAtomicPublish = false })
		c := newCommitter(t, nc, func(cfg *CommitterConfig) { cfg.minBatch = 2 })
		_, errs := submitAll(t, c, numbered(0, 200))
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
		checkOnce(t, s, 200)
	})

	t.Run("a subject of another stream", func(t *testing.T) {
		nc, _ := freshStream(t, nil)
		c := newCommitter(t, nc, func(cfg *CommitterConfig) { cfg.Stream = "OTHER" })
		if err := c.Publish(t.Context(), message(id(0), nil)); !errors.Is(err, ErrRefused) {
			t.Errorf("%v, want ErrRefused", err)
		}
	})

	t.Run("the queue is bounded", func(t *testing.T) {
		nc, _ := freshStream(t, nil)
		c := newCommitter(t, nc, func(cfg *CommitterConfig) { cfg.MaxBytes = 10_000 })
		release := block(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		queued := 0
		var err error
		for ; err == nil; queued++ {
			err = c.Submit(ctx, message(id(queued), make([]byte, 1000)), func(Ack, error) {})
		}
		if !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.Canceled) || queued < 8 || queued > 10 {
			t.Errorf("after %d messages: %v", queued, err)
		}
		done := make(chan error)
		go func() { done <- c.Publish(t.Context(), message("waits for space", make([]byte, 1000))) }()
		release()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := c.Publish(t.Context(), message("larger than the queue", make([]byte, 20_000))); err != nil {
			t.Error(err)
		}
	})

	t.Run("closing commits what is queued", func(t *testing.T) {
		nc, s := freshStream(t, nil)
		c := newCommitter(t, nc, nil)
		for _, m := range numbered(0, 500) {
			if err := c.Submit(t.Context(), m, func(Ack, error) {}); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		checkOnce(t, s, 500)
		if err := c.Publish(t.Context(), message("late", nil)); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v, want ErrClosed", err)
		}
	})
}

// TestFullAfterALostAnswer: what the stream may have stored, as the answer to it was lost, is not given back as refused by
// a full stream: it would be published again under another id. It is tried under its own until the stream takes it.
func TestFullAfterALostAnswer(t *testing.T) {
	nc := connect(t, testenv.NATS(t, testenv.NATSOptions{Unsynced: true}))
	tries := make(chan string, 8)
	_, err := nc.Subscribe(testSubject, func(m *nats.Msg) {
		tries <- m.Header.Get(wire.HeaderMessageID)
		answer := `{"stream":"T","seq":7}`
		switch len(tries) {
		case 1:
			return // the answer is lost
		case 2:
			answer = `{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"}}`
		}
		_ = m.Respond([]byte(answer)) // without it the test waits in vain
	})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	c := newCommitter(t, nc, func(cfg *CommitterConfig) {
		cfg.AckWait, cfg.Logger = time.Second, slog.New(slog.NewTextHandler(&log, nil))
	})
	acks, errs := submitAll(t, c, numbered(0, 1))
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if errs[0] != nil || acks[0].Sequence != 7 {
		t.Errorf("%+v, %v; want sequence 7", acks[0], errs[0])
	}
	for len(tries) > 0 {
		if is := <-tries; is != id(0) {
			t.Errorf("published under %s, want %s", is, id(0))
		}
	}
	if !strings.Contains(log.String(), "is full") {
		t.Errorf("the log does not say that the stream is full: %s", &log)
	}
}

// TestMessageUnchanged: the headers of a batch are not left in the caller's message, and not shared between tries.
func TestMessageUnchanged(t *testing.T) {
	nc := connect(t, testenv.NATS(t, testenv.NATSOptions{Unsynced: true}))
	makeStream(t, nc, nil)
	c := newCommitter(t, nc, func(cfg *CommitterConfig) { cfg.minBatch = 2 })
	msgs := numbered(0, 100)
	if _, errs := submitAll(t, c, msgs); errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	for _, m := range msgs {
		if len(m.Header) != 1 || !bytes.Equal(m.Data, []byte("x")) {
			t.Fatalf("message is %v after it was published", fmt.Sprint(m.Header))
		}
	}
}
