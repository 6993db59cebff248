// SPDX-License-Identifier: Apache-2.0

package kvbucket_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/kvbucket"
	"github.com/substorm/substorm/internal/testenv"
)

// TestNobodyRemovesOthersKeys: a message to a key of one's own removes no other; a bucket that was made as
// NATS makes them becomes such a bucket, with what is in it.
func TestNobodyRemovesOthersKeys(t *testing.T) {
	t.Parallel()
	js := testenv.NATS(t, testenv.NATSOptions{Unsynced: true}).JetStream(t)
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "B", History: 1, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	put := func() {
		t.Helper()
		for _, key := range []string{"a", "b.c"} {
			if _, err := kv.Put(t.Context(), key, []byte("what others wrote")); err != nil {
				t.Fatal(err)
			}
		}
	}
	rollup := func() error {
		m := nats.NewMsg("$KV.B.own")
		m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupAll)
		_, err := js.PublishMsg(t.Context(), m)
		return err
	}
	put()
	if err := rollup(); err != nil || !slices.Equal(keys(t, kv), []string{"own"}) {
		t.Fatalf("the attack does not work, so this test shows nothing: %v, %v", keys(t, kv), err)
	}
	put()
	s, err := js.Stream(t.Context(), kvbucket.StreamName("B"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.UpdateStream(t.Context(), kvbucket.Bucket{Name: "B", Replicas: 1}.Stream(s.CachedInfo().Config)); err != nil {
		t.Fatal(err)
	}
	var refused *jetstream.APIError
	if err := rollup(); !errors.As(err, &refused) {
		t.Errorf("a rollup: %v", err)
	}
	if err := s.DeleteMsg(t.Context(), 2); !errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		t.Errorf("a message is deleted: %v", err)
	}
	if got := keys(t, kv); !slices.Equal(got, []string{"a", "b.c", "own"}) {
		t.Errorf("what is left: %v", got)
	}
}

// TestForget: a key is gone for who reads and for who follows, and the marker of it has an end, but in a bucket that knows none yet.
func TestForget(t *testing.T) {
	t.Parallel()
	js := testenv.NATS(t, testenv.NATSOptions{Unsynced: true}).JetStream(t)
	if _, err := js.CreateStream(t.Context(), kvbucket.Bucket{Name: "NEW", Replicas: 1, Forgets: true}.Stream(jetstream.StreamConfig{})); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "OLD", History: 1}); err != nil {
		t.Fatal(err)
	}
	for bucket, ttl := range map[string]string{"NEW": "168h0m0s", "OLD": ""} {
		kv, err := js.KeyValue(t.Context(), bucket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Put(t.Context(), "pod-1", []byte("x")); err != nil {
			t.Fatal(err)
		}
		follows, err := kv.WatchAll(t.Context(), jetstream.UpdatesOnly())
		if err != nil {
			t.Fatal(err)
		}
		if err := kvbucket.Forget(t.Context(), js, bucket, "pod-1"); err != nil {
			t.Fatalf("%s: %v", bucket, err)
		}
		if e := <-follows.Updates(); e == nil || e.Operation() != jetstream.KeyValueDelete {
			t.Errorf("%s: who follows is told %v", bucket, e)
		}
		if _, err := kv.Get(t.Context(), "pod-1"); !errors.Is(err, jetstream.ErrKeyNotFound) {
			t.Errorf("%s: it is read: %v", bucket, err)
		}
		s, err := js.Stream(t.Context(), kvbucket.StreamName(bucket))
		if err != nil {
			t.Fatal(err)
		}
		m, err := s.GetLastMsgForSubject(t.Context(), "$KV."+bucket+".pod-1")
		if err != nil || m.Header.Get(jetstream.MsgTTLHeader) != ttl {
			t.Errorf("%s: the marker: %+v, %v", bucket, m, err)
		}
		if _, err := kv.Create(t.Context(), "pod-1", []byte("again")); err != nil {
			t.Errorf("%s: the key comes again: %v", bucket, err)
		}
	}
}

func keys(t *testing.T, kv jetstream.KeyValue) []string {
	t.Helper()
	all, err := kv.Keys(t.Context())
	if err != nil && !errors.Is(err, jetstream.ErrNoKeysFound) {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}
