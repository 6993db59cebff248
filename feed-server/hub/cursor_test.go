// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const streamName = "OBS_hub"

func makeStream(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: streamName, Subjects: []string{"obs.hub.>"}, MaxMsgsPerSubject: -1, AllowDirect: true})
	if err != nil {
		t.Fatal(err)
	}
}

func publish(t *testing.T, js jetstream.JetStream, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		if _, err := js.Publish(t.Context(), fmt.Sprintf("obs.hub.mag-%d.raw", n%2), fmt.Appendf(nil, "%06d", n)); err != nil {
			t.Fatal(err)
		}
	}
}

func startHub(t *testing.T, js jetstream.JetStream, ring int) *Hub {
	t.Helper()
	h := New(Config{JetStream: js, Stream: streamName, Budget: NewBudget(ring), Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return h
}

// next is Poll that waits.
func next(ctx context.Context, c *Cursor, most Most) (Batch, error) {
	for {
		b, wait, ok, err := c.Poll(most)
		if ok || err != nil {
			return b, err
		}
		select {
		case <-wait.Normal:
		case <-ctx.Done():
			return Batch{}, ctx.Err()
		}
	}
}

// read returns what a cursor gives until it has so many messages or a run of
// missing ones.
func read(t *testing.T, c *Cursor, most, want int) (got []string, missing *Missing) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	for len(got) < want {
		b, err := next(ctx, c, Most{most, 1 << 20})
		if err != nil {
			t.Fatalf("after %d messages: %v", len(got), err)
		}
		if b.Missing != nil {
			return got, b.Missing
		}
		for _, m := range b.Messages {
			got = append(got, string(m.Data))
		}
	}
	return got, nil
}

func expect(t *testing.T, got []string, from, to, step int) {
	t.Helper()
	n := from
	for _, g := range got {
		if g != fmt.Sprintf("%06d", n) {
			t.Fatalf("got %s, want %06d", g, n)
		}
		n += step
	}
	if n < to {
		t.Fatalf("the last is %06d, want up to %06d", n-step, to)
	}
}

// A consumer that is behind memory reads on from the stream, misses nothing and
// gets nothing twice; others are not held up by it.
func TestBehindMemory(t *testing.T) {
	t.Parallel()
	nats := testenv.NATS(t, testenv.NATSOptions{})
	js := nats.JetStream(t)
	makeStream(t, js)
	h := startHub(t, js, 20*messageOverhead)
	slots := semaphore.NewWeighted(1)
	everything, err := h.Cursor(t.Context(), wire.ResumeToken{}, slots, all)
	if err != nil {
		t.Fatal(err)
	}
	defer everything.Close()
	odd, err := h.Cursor(t.Context(), wire.ResumeToken{}, slots, func(m *Message) bool { return m.Subject == "obs.hub.mag-1.raw" })
	if err != nil {
		t.Fatal(err)
	}
	defer odd.Close()
	publish(t, js, 0, 1000)
	got, missing := read(t, everything, 7, 1000)
	if missing != nil {
		t.Fatalf("missing %+v", missing)
	}
	expect(t, got, 0, 1000, 1)
	everything.Close()
	if got, missing = read(t, odd, 100, 500); missing != nil {
		t.Fatalf("missing %+v", missing)
	}
	expect(t, got, 1, 1000, 2)
	odd.Close()

	// A consumer that comes again continues after its token.
	place, err := h.Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again, err := h.Cursor(t.Context(), wire.ResumeToken{Epoch: place.Epoch, Sequence: 500, Index: 9}, slots, all)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	got, _ = read(t, again, 64, 500)
	expect(t, got, 500, 1000, 1)
	if lag := again.Position().Lag(); lag.Messages != 0 {
		t.Errorf("it has everything, and lags by %+v", lag)
	}
}

// Messages that leave the stream before a consumer comes to them are missing, and counted.
func TestOverrun(t *testing.T) {
	t.Parallel()
	nats := testenv.NATS(t, testenv.NATSOptions{})
	js := nats.JetStream(t)
	makeStream(t, js)
	h := startHub(t, js, 20*messageOverhead)
	c, err := h.Cursor(t.Context(), wire.ResumeToken{}, semaphore.NewWeighted(1), all)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	publish(t, js, 0, 200)
	got, _ := read(t, c, 10, 10)
	expect(t, got, 0, 10, 1)
	s, err := js.Stream(t.Context(), streamName)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(151)); err != nil {
		t.Fatal(err)
	}
	rest, missing := read(t, c, 10, 200)
	if missing == nil || missing.Reason != wire.GapRetention || missing.To != 150 || missing.From != uint64(11+len(rest)) {
		t.Fatalf("after %d more: missing %+v", len(rest), missing)
	}
	got, _ = read(t, c, 10, 50)
	expect(t, got, 150, 200, 1)
}

// Every consumer survives a restart of the server. If the stream was recreated, consumers get a
// notice, and all that the new one holds.
func TestStreamMadeAnew(t *testing.T) {
	t.Parallel()
	nats := testenv.NATS(t, testenv.NATSOptions{})
	js := nats.JetStream(t)
	makeStream(t, js)
	h := startHub(t, js, 1<<20)
	c, err := h.Cursor(t.Context(), wire.ResumeToken{}, semaphore.NewWeighted(1), all)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	publish(t, js, 0, 10)
	nats.Kill()
	nats.Start()
	publish(t, js, 10, 20)
	got, missing := read(t, c, 100, 20)
	if missing != nil {
		t.Fatalf("missing %+v", missing)
	}
	expect(t, got, 0, 20, 1)
	old := c.place.Epoch
	if err := js.DeleteStream(t.Context(), streamName); err != nil {
		t.Fatal(err)
	}
	makeStream(t, js)
	publish(t, js, 20, 30)
	if got, missing = read(t, c, 100, 10); missing == nil || missing.Reason != wire.GapStreamRecreated || missing.Epoch != old || missing.From != 21 {
		t.Fatalf("got %v, missing %+v", got, missing)
	}
	got, _ = read(t, c, 100, 10)
	expect(t, got, 20, 30, 1)
}

// A token of a deleted stream is recognized: the consumer gets a notice, and all that the current
// stream holds.
func TestTokenOfAnotherStream(t *testing.T) {
	t.Parallel()
	js := testenv.NATS(t, testenv.NATSOptions{}).JetStream(t)
	makeStream(t, js)
	publish(t, js, 0, 10)
	h := startHub(t, js, 1<<20)
	c, err := h.Cursor(t.Context(), wire.ResumeToken{Epoch: "1a1fb67140b", Sequence: 41}, semaphore.NewWeighted(1), all)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, missing := read(t, c, 100, 1)
	want := Missing{Epoch: "1a1fb67140b", From: 42, To: 42, Count: 1, Reason: wire.GapStreamRecreated}
	if len(got) > 0 || missing == nil || *missing != want {
		t.Fatalf("first %q, missing %+v", got, missing)
	}
	if got, missing = read(t, c, 100, 10); missing != nil {
		t.Fatalf("missing %+v", missing)
	}
	expect(t, got, 0, 10, 1)
}
