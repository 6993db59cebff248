// SPDX-License-Identifier: Apache-2.0

package stream_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
)

func makeStream(t *testing.T, js jetstream.JetStream) string {
	t.Helper()
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "R", Subjects: []string{"r.>"}, AllowDirect: true})
	if err != nil {
		t.Fatal(err)
	}
	epoch, _, err := stream.Epoch(t.Context(), js, "R")
	if err != nil {
		t.Fatal(err)
	}
	return epoch
}

func publish(t *testing.T, js jetstream.JetStream, subject string, from, to int) {
	t.Helper()
	for i := from; i <= to; i++ {
		m := nats.NewMsg(subject)
		m.Header.Set("n", fmt.Sprint(i))
		m.Data = []byte(fmt.Sprint("payload ", i))
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
}

// readAll reads to the stream's end and returns the sequences.
func readAll(t *testing.T, r *stream.Reader) []stream.Message {
	t.Helper()
	var all []stream.Message
	for {
		got, err := r.Next(t.Context(), 7, 200*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, got...)
		if _, end := r.Position(); end {
			return all
		}
	}
}

func TestReader(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{})
	js := server.JetStream(t)
	epoch := makeStream(t, js)
	publish(t, js, "r.a", 1, 20)
	publish(t, js, "r.b", 21, 40)

	r := stream.NewReader(js, stream.ReaderConfig{Stream: "R", Epoch: epoch})
	if got := readAll(t, r); len(got) != 40 || got[39].Sequence != 40 || string(got[39].Data) != "payload 40" || got[0].At.IsZero() {
		t.Fatalf("read %d messages", len(got))
	}
	filtered := stream.NewReader(js, stream.ReaderConfig{Stream: "R", Epoch: epoch, Subject: "r.b", Start: 30, HeadersOnly: true})
	got := readAll(t, filtered)
	if len(got) != 11 || got[0].Sequence != 30 || got[0].Header.Get("n") != "30" || len(got[0].Data) != 0 {
		t.Fatalf("read %d messages, the first %+v", len(got), got[0])
	}
	// It continues with what comes later, also after the server was killed and its consumers are gone.
	publish(t, js, "r.b", 41, 45)
	server.Kill()
	server.Start()
	for len(got) < 16 {
		more, err := filtered.Next(t.Context(), 100, 200*time.Millisecond)
		if err != nil {
			continue // reconnecting
		}
		got = append(got, more...)
	}
	if got[15].Sequence != 45 {
		t.Errorf("after a restart the last is %d", got[15].Sequence)
	}
	// Purged messages count as passed.
	publish(t, js, "r.a", 46, 50)
	s, err := js.Stream(t.Context(), "R")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	readAll(t, filtered)
	if next, _ := filtered.Position(); next != 51 {
		t.Errorf("after a purge the next is %d, want 51", next)
	}
}

// A reader whose consumer the server forgot, between two questions or in the middle of one, continues where it was.
func TestReaderConsumerGone(t *testing.T) {
	js := testenv.NATS(t, testenv.NATSOptions{}).JetStream(t)
	epoch := makeStream(t, js)
	s, err := js.Stream(t.Context(), "R")
	if err != nil {
		t.Fatal(err)
	}
	deleteConsumers := func() (n int) {
		names := s.ConsumerNames(t.Context())
		for name := range names.Name() {
			if err := s.DeleteConsumer(t.Context(), name); err != nil {
				t.Error(err)
			}
			n++
		}
		if err := names.Err(); err != nil {
			t.Error(err)
		}
		return n
	}
	publish(t, js, "r.a", 1, 10)
	r := stream.NewReader(js, stream.ReaderConfig{Stream: "R", Epoch: epoch})
	next := func(most int, from, to uint64) {
		t.Helper()
		got, err := r.Next(t.Context(), most, 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if want := int(to - from + 1); len(got) != want || got[0].Sequence != from || got[want-1].Sequence != to {
			t.Fatalf("%d messages, want %d to %d", len(got), from, to)
		}
	}
	next(4, 1, 4)
	if n := deleteConsumers(); n != 1 {
		t.Fatalf("%d consumers, want 1", n)
	}
	next(6, 5, 10)

	// While the reader waits, with nothing there to read.
	type answer struct {
		messages []stream.Message
		err      error
	}
	done := make(chan answer)
	go func() {
		messages, err := r.Next(t.Context(), 1, 30*time.Second)
		done <- answer{messages, err}
	}()
	waits := func() bool {
		for info := range s.ListConsumers(t.Context()).Info() {
			if info.NumWaiting > 0 {
				return true
			}
		}
		return false
	}
	testenv.Await(t, "the reader waits", waits)
	deleteConsumers()
	testenv.Await(t, "the reader waits on another consumer", waits)
	publish(t, js, "r.a", 11, 11)
	if a := <-done; a.err != nil || len(a.messages) != 1 || a.messages[0].Sequence != 11 {
		t.Fatalf("after the consumer was deleted: %+v, %v", a.messages, a.err)
	}
	deleteConsumers()
	if got := readAll(t, r); len(got) != 0 {
		t.Errorf("read %d messages where there are no more", len(got))
	}
}

// If the server is silent, nothing is known: that is never an end.
func TestReaderSilence(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{})
	js := server.JetStream(t)
	epoch := makeStream(t, js)
	publish(t, js, "r.a", 1, 3)
	r := stream.NewReader(js, stream.ReaderConfig{Stream: "R", Epoch: epoch})
	readAll(t, r)
	publish(t, js, "r.a", 4, 4)
	server.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	got, err := r.Next(ctx, 10, 100*time.Millisecond)
	cancel()
	if _, end := r.Position(); end || len(got) > 0 || err == nil {
		t.Errorf("of a silent server: %d messages, end %v, %v", len(got), end, err)
	}
	server.Continue()
	var all []stream.Message
	for len(all) == 0 {
		if got, err := r.Next(t.Context(), 10, time.Second); err == nil {
			all = append(all, got...)
		}
	}
	if all[0].Sequence != 4 {
		t.Errorf("goes on with %d", all[0].Sequence)
	}
}

// A wait that is over before anything could be asked is silence, no failure.
func TestReaderNoTime(t *testing.T) {
	js := testenv.NATS(t, testenv.NATSOptions{}).JetStream(t)
	epoch := makeStream(t, js)
	publish(t, js, "r.a", 1, 3)
	r := stream.NewReader(js, stream.ReaderConfig{Stream: "R", Epoch: epoch})
	for range 3 {
		if got, err := r.Next(t.Context(), 7, time.Nanosecond); err != nil || len(got) > 0 {
			t.Fatalf("got %d messages, %v; want none and no error", len(got), err)
		}
	}
	if got := readAll(t, r); len(got) != 3 {
		t.Errorf("read %d messages of 3", len(got))
	}
}

func TestReaderEpoch(t *testing.T) {
	js := testenv.NATS(t, testenv.NATSOptions{}).JetStream(t)
	epoch := makeStream(t, js)
	publish(t, js, "r.a", 1, 3)
	r := stream.NewReader(js, stream.ReaderConfig{Stream: "R", Epoch: epoch})
	readAll(t, r)
	if err := js.DeleteStream(t.Context(), "R"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond) // an epoch is a millisecond
	if makeStream(t, js) == epoch {
		t.Fatal("the new stream has the old one's epoch")
	}
	publish(t, js, "r.a", 1, 10)
	var err error
	for err == nil || !errors.Is(err, stream.ErrEpoch) {
		var got []stream.Message
		if got, err = r.Next(t.Context(), 10, 100*time.Millisecond); len(got) > 0 {
			t.Fatalf("read %d messages of another stream", len(got))
		}
	}
}

func TestCell(t *testing.T) {
	js := testenv.NATS(t, testenv.NATSOptions{}).JetStream(t)
	ctx := t.Context()
	kv, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "CURSOR"})
	if err != nil {
		t.Fatal(err)
	}
	a, b := stream.NewCell(js, kv, "x"), stream.NewCell(js, kv, "x")
	for _, c := range []*stream.Cell{a, b} {
		if v, err := c.Load(ctx); v != nil || err != nil {
			t.Fatalf("%q, %v", v, err)
		}
	}
	for _, v := range []string{"1", "2"} {
		if err := a.Store(ctx, []byte(v)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Store(ctx, []byte("3")); !errors.Is(err, stream.ErrConflict) {
		t.Errorf("a second first writer: %v", err)
	}
	if v, err := b.Load(ctx); string(v) != "2" || err != nil {
		t.Fatalf("%q, %v", v, err)
	}
	if err := b.Store(ctx, []byte("3")); err != nil {
		t.Fatal(err)
	}
	if err := a.Store(ctx, []byte("4")); !errors.Is(err, stream.ErrConflict) {
		t.Errorf("a writer whose time is over: %v", err)
	}
}
