// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/watch"
)

// follower notes what is heard of a bucket.
type follower struct {
	mu      sync.Mutex
	begun   []watch.Bucket
	reading map[string]string // since the bucket was begun
	settled map[string]string
}

func (f *follower) begin(b watch.Bucket) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun, f.reading = append(f.begun, b), map[string]string{}
}

func (f *follower) take(e jetstream.KeyValueEntry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if delete(f.reading, e.Key()); e.Operation() == jetstream.KeyValuePut {
		f.reading[e.Key()] = string(e.Value())
	}
}

func (f *follower) settle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settled = maps.Clone(f.reading)
}

// await waits until the bucket was begun so often, and holds what it should.
func (f *follower) await(t *testing.T, begun int, want map[string]string) watch.Bucket {
	t.Helper()
	n, diff := 0, ""
	for range testenv.Attempts() {
		f.mu.Lock()
		n, diff = len(f.begun), cmp.Diff(want, f.settled)
		last := watch.Bucket{}
		if n > 0 {
			last = f.begun[n-1]
		}
		f.mu.Unlock()
		if n >= begun && diff == "" {
			return last
		}
	}
	t.Fatalf("begun %d times, want %d; -want +got\n%s", n, begun, diff)
	return watch.Bucket{}
}

// A bucket is followed as it changes, through a restart of NATS; one whose entries
// last otherwise, and another one of its name, are read from the beginning.
func TestRun(t *testing.T) {
	t.Parallel()
	nats := testenv.NATS(t, testenv.NATSOptions{})
	js := nats.JetStream(t)
	var f follower
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		watch.Run(ctx, js, watch.Config{Bucket: "B", What: "the bucket", Logger: slog.New(slog.DiscardHandler), Begin: f.begin, Take: f.take, Settle: f.settle})
	})
	cfg := jetstream.KeyValueConfig{Bucket: "B", TTL: time.Hour}
	create := func() jetstream.KeyValue {
		t.Helper()
		kv, err := js.CreateKeyValue(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		return kv
	}
	put := func(kv jetstream.KeyValue, key string) {
		t.Helper()
		if _, err := kv.PutString(t.Context(), key, "of "+key); err != nil {
			t.Fatal(err)
		}
	}
	kv := create() // after it is asked for
	put(kv, "a")
	first := f.await(t, 1, map[string]string{"a": "of a"})
	put(kv, "b")
	if err := kv.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	f.await(t, 1, map[string]string{"b": "of b"})

	cfg.TTL = 2 * time.Hour
	if _, err := js.UpdateKeyValue(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	second := f.await(t, 2, map[string]string{"b": "of b"})
	if first.TTL != time.Hour || second.TTL != 2*time.Hour || !first.Created.Equal(second.Created) {
		t.Errorf("%+v, then %+v", first, second)
	}

	nats.Kill()
	nats.Start()
	f.await(t, 3, map[string]string{"b": "of b"})

	if err := js.DeleteKeyValue(t.Context(), "B"); err != nil {
		t.Fatal(err)
	}
	put(create(), "c")
	third := f.await(t, 4, map[string]string{"c": "of c"})
	if !third.Created.After(second.Created) {
		t.Errorf("made at %v, and anew at %v", second.Created, third.Created)
	}
}
