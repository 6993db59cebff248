// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// TestReaders: named readers of the Site.
func TestReaders(t *testing.T) {
	w := newFeedWorld(t)
	w.rollOut()
	w.patchSite(`{"spec":{"readersSecretRef":{"name":"readers"}}}`)
	c := w.awaits("Site", "hub", "Ready", "False/SecretNotFound")
	says(t, c, `Secret "readers"`, "spec.readersSecretRef")
	w.secret("readers", map[string]string{"ops": "a-token-that-is-long-enough", "short": "secret"})
	c = w.awaits("Site", "hub", "Ready", "False/SecretIncomplete")
	says(t, c, "short", "openssl rand -hex 32")
	g := w.gateway("pool", "pool-0")
	eventually(t, "the reader's entry", func() error {
		value, err := g.get(wire.RegistryBucket("hub"), wire.RegistryReaderKey("ops"))
		if err != nil {
			return err
		}
		entry, err := wire.Decode[wire.ReaderEntry](value)
		if err == nil && (len(entry.Tokens) != 1 || !entry.Tokens[0].Matches("a-token-that-is-long-enough")) {
			err = fmt.Errorf("%+v", entry)
		}
		return err
	})
	if c, err := g.complete(); err != nil || c.Readers != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	w.patchSite(`{"spec":{"readersSecretRef":null}}`)
	w.awaits("Site", "hub", "Ready", "True/Ready")
	w.vanishes("the reader's entry", func() error {
		_, err := g.get(wire.RegistryBucket("hub"), wire.RegistryReaderKey("ops"))
		return err
	}, jetstream.ErrKeyNotFound)
}

// TestFeedServerComesAndGoes: its objects, and what its user may do.
func TestFeedServerComesAndGoes(t *testing.T) {
	w := newFeedWorld(t)
	w.rollOut()
	w.awaits("Site", "hub", "Ready", "True/Ready")
	s := w.feedServer("feed-0")
	ctx := t.Context()
	if _, err := s.js.PublishMsg(ctx, &nats.Msg{Subject: "gap.hub.client"}); err != nil {
		t.Error("publish a gap record:", err)
	}
	for what, err := range map[string]error{
		"write a lease":  s.putKV("LEASE_hub", "delivery.0"),
		"write a cursor": s.putKV("CURSOR_hub", "delivery.client"),
		"report":         s.putKV("STATUS_hub", "feedserver.feed-0"),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, try := range map[string]func(context.Context) error{
		"publish telemetry":  func(ctx context.Context) error { _, err := s.js.Publish(ctx, "obs.hub.camera.raw", nil); return err },
		"write the registry": func(context.Context) error { return s.putKV("REGISTRY_hub", "consumer.x") },
		"read the ledger": func(ctx context.Context) error {
			kv, err := s.js.KeyValue(ctx, "LEDGER_hub")
			if err != nil {
				return err
			}
			_, err = kv.Get(ctx, "a.b.c.d")
			return err
		},
		"delete a stream": func(ctx context.Context) error { return s.js.DeleteStream(ctx, "OBS_hub") },
	} {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		if err := try(ctx); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("a feed server may %s: %v", what, err)
		}
		cancel()
	}

	w.applyFeed("all", "")
	w.applyConsumer("viewer", "all", "WebSocket", "")
	w.patchSite(`{"spec":{"feedServer":null}}`)
	for _, o := range []client.Object{&appsv1.Deployment{}, &corev1.Service{}, &corev1.ServiceAccount{}} {
		eventually(t, "objects of the feed server go", func() error {
			err := w.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: "hub-feed-server"}, o)
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T is there: %v", o, err)
			}
			return nil
		})
	}
	w.awaits("Site", "hub", "Ready", "True/Ready")
	c := w.awaits("FeedConsumer", "viewer", "Ready", "False/NoFeedServer")
	says(t, c, `Site "hub"`, "spec.feedServer")
	var status v1alpha1.SiteStatus
	if w.status("Site", "hub", &status); status.FeedServer != nil {
		t.Errorf("%+v", status.FeedServer)
	}
}

func (s *feedServer) putKV(bucket, key string) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
	defer cancel()
	kv, err := s.js.KeyValue(ctx, bucket)
	if err == nil {
		_, err = kv.Put(ctx, key, []byte(`{}`))
	}
	return err
}
