// SPDX-License-Identifier: Apache-2.0

package stream_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
)

// The leader of a bucket says what it holds: a watch that the server placed on a node
// that is behind is no end, neither for what was written nor for what was deleted.
func TestEntriesOfReplicaBehind(t *testing.T) {
	cluster := testenv.NATSCluster(t, testenv.NATSOptions{Unsynced: true})
	js := cluster.JetStream(t)
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "B", Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	b := &behind{js: js}
	if b.stream, err = js.Stream(t.Context(), "KV_B"); err != nil {
		t.Fatal(err)
	}
	b.choose(t, cluster)
	const rounds, late, readers = 10, 5, 8
	var there atomic.Int64
	for round := 0; there.Load() == 0 && round < rounds; round++ { // it may have caught up before a watch is placed on it
		key := func(i int) string { return fmt.Sprintf("late.%d.%d", round, i) }
		match, deleted := fmt.Sprintf("late.%d.*", round), fmt.Sprintf("late.%d.deleted", round)
		put(t, kv, deleted, nil)
		b.node.Kill()
		payload := bytes.Repeat([]byte("x"), behindSize)
		for i := range behindMessages {
			if _, err := js.PublishAsync(fmt.Sprintf("$KV.B.early.%d", i), payload); err != nil {
				t.Fatal(err)
			}
		}
		<-js.PublishAsyncComplete()
		if err := kv.Delete(t.Context(), deleted); err != nil {
			t.Fatal(err)
		}
		for i := range late {
			put(t, kv, key(i), fmt.Append(nil, round))
		}
		over := make(chan struct{})
		var all sync.WaitGroup
		for range readers { // from before the server comes, so that some are placed on it while it is behind
			all.Go(func() {
				for {
					select {
					case <-over:
						return
					case <-t.Context().Done():
						return
					default:
					}
					if short(t, kv, match, late+1) { // one is the deletion
						there.Add(1)
					}
					n := 0
					err := stream.Entries(t.Context(), js, kv, match, func(e jetstream.KeyValueEntry) error {
						if e.Key() != key(n) || string(e.Value()) != fmt.Sprint(round) {
							t.Errorf("round %d: %s is %q", round, e.Key(), e.Value())
						}
						n++
						return nil
					})
					if err == nil && n != late { // an error: the servers choose a leader
						t.Errorf("round %d: %d entries of %d", round, n, late)
					}
				}
			})
		}
		b.node.Start()
		testenv.Await(t, "the server that is behind catches up", func() bool { return !b.lags(t) })
		close(over)
		all.Wait()
	}
	if there.Load() == 0 {
		t.Fatal("no watch was placed on the server that is behind")
	}
	t.Logf("%d watches were placed on the server that is behind", there.Load())
}

// Entries that nothing will come behind are not waited for: the newest of them was
// purged without a trace.
func TestEntriesWithoutTheNewest(t *testing.T) {
	t.Parallel()
	js := testenv.NATS(t, testenv.NATSOptions{}).JetStream(t)
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "B"})
	if err != nil {
		t.Fatal(err)
	}
	put(t, kv, "a.1", []byte("one"))
	put(t, kv, "a.2", []byte("two"))
	put(t, kv, "b.1", nil)
	s, err := js.Stream(t.Context(), "KV_B")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeSubject("$KV.B.a.2")); err != nil {
		t.Fatal(err)
	}
	for match, want := range map[string]string{"a.*": "a.1=one ", "*.1": "a.1=one b.1= ", "c.*": "", ">": "a.1=one b.1= "} {
		got := ""
		err := stream.Entries(t.Context(), js, kv, match, func(e jetstream.KeyValueEntry) error {
			got += fmt.Sprintf("%s=%s ", e.Key(), e.Value())
			return nil
		})
		if err != nil || got != want {
			t.Errorf("%s: %q, want %q: %v", match, got, want, err)
		}
	}
}

// short says whether a watch ends with fewer entries than there are.
func short(t *testing.T, kv jetstream.KeyValue, match string, want int) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	w, err := kv.Watch(ctx, match)
	if err != nil {
		return false
	}
	defer func() { _ = w.Stop() }()
	for n := 0; ; n++ {
		select {
		case e := <-w.Updates():
			if e == nil {
				return n < want && ctx.Err() == nil
			}
		case <-ctx.Done():
			return false
		}
	}
}

func put(t *testing.T, kv jetstream.KeyValue, key string, value []byte) {
	t.Helper()
	if _, err := kv.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}
