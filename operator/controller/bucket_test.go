// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/operator/plan/bus"
)

// TestBucketsTakeNoRollups: a bucket that the operator makes, or finds as NATS or an earlier version made it, takes no message that
// removes others' keys, holds what it held, and is not changed again.
func TestBucketsTakeNoRollups(t *testing.T) {
	t.Parallel()
	js := testenv.NATS(t, testenv.NATSOptions{Unsynced: true}).JetStream(t)
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "OLD", Description: "an old one", History: 1}); err != nil {
		t.Fatal(err)
	}
	put := func(key, mode string) error {
		m := nats.NewMsg(key)
		if mode != "" {
			m.Header.Set(jetstream.MsgRollup, mode)
		}
		_, err := js.PublishMsg(t.Context(), m)
		return err
	}
	if err := put("$KV.OLD.others", ""); err != nil {
		t.Fatal(err)
	}
	for _, b := range []bus.Bucket{
		{Name: "OLD", Description: "a bucket", Replicas: 1, Forgets: true}, {Name: "NEW", Replicas: 1}, {Name: "LEASE", TTL: 20 * time.Second, Replicas: 1, Unsynced: true},
		{Name: "SYNCED", Replicas: 1}, {Name: "SYNCED", Replicas: 1, Unsynced: true}, // as an earlier version made it: it stays so
	} {
		made := b.Name != "OLD" && !(b.Name == "SYNCED" && b.Unsynced)
		if created, err := ensureBucket(t.Context(), js, b); err != nil || created != made {
			t.Errorf("bucket %s: made %t, %v", b.Name, created, err)
		}
		s, err := js.Stream(t.Context(), streamOf(b.Name))
		if err != nil {
			t.Fatal(err)
		}
		if is := s.CachedInfo().Config; !reflect.DeepEqual(bucketConfig(is, b), is) || is.AllowRollup || is.AllowMsgTTL != b.Forgets || is.AllowAtomicPublish != (b.Name != "LEASE") || (is.PersistMode == jetstream.AsyncPersistMode) != (b.Name == "LEASE") || !is.AllowDirect || is.MaxAge != b.TTL {
			t.Errorf("bucket %s: %+v", b.Name, is)
		}
		var refused *jetstream.APIError
		for _, mode := range []string{jetstream.MsgRollupAll, jetstream.MsgRollupSubject} {
			if err := put("$KV."+b.Name+".own", mode); !errors.As(err, &refused) {
				t.Errorf("bucket %s: Nats-Rollup: %s: %v", b.Name, mode, err)
			}
		}
		if created, err := ensureBucket(t.Context(), js, b); created || err != nil {
			t.Errorf("bucket %s again: made %t, %v", b.Name, created, err)
		}
	}
	kv, err := js.KeyValue(t.Context(), "OLD")
	if err == nil {
		_, err = kv.Get(t.Context(), "others")
	}
	if err != nil {
		t.Errorf("what the old bucket held: %v", err)
	}
}

// TestStreamsTakeNoRollups: the same for a base stream that was changed to allow rollups.
func TestStreamsTakeNoRollups(t *testing.T) {
	t.Parallel()
	js := testenv.NATS(t, testenv.NATSOptions{Unsynced: true}).JetStream(t)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OBS_hub", Subjects: []string{"obs.hub.>"}, AllowRollup: true, Discard: jetstream.DiscardNew}); err != nil {
		t.Fatal(err)
	}
	if _, err := ensureStream(t.Context(), js, bus.Stream{Name: "OBS_hub", Subjects: []string{"obs.hub.>"}, MaxBytes: 1 << 20, Replicas: 1, Duplicates: time.Minute}, wanted{}); err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), "OBS_hub")
	if err != nil || s.CachedInfo().Config.AllowRollup {
		t.Errorf("%v, %v", s, err)
	}
}
