// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/bus"
)

// TestReaders: named readers of the Site.
func TestReaders(t *testing.T) {
	w := newFeedWorld(t)
	w.rollOut()
	w.patchSite(`{"spec":{"readersSecretRef":{"name":"readers"}}}`)
	c := w.awaits("Site", "hub", "Ready", "False/SecretNotFound")
	says(t, c, `Secret "readers"`, "spec.readersSecretRef")
	readers := w.secret("readers", map[string]string{"ops": "a-token-that-is-long-enough", "short": "secret"})
	c = w.awaits("Site", "hub", "Ready", "False/SecretNotLabeled")
	says(t, c, `Secret "readers"`, "spec.readersSecretRef", "kubectl label secret readers substorm.dev/tokens=true")
	w.label(readers)
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

// TestFeedServerComesAndGoes: its objects, what its user may do, and what becomes of them without its Site.
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

	// Its objects are its own, and go with it; those of a Site that is gone the operator removes.
	w.applyFeed("all", "")
	w.applyConsumer("viewer", "all", "WebSocket", "")
	made := []client.Object{&appsv1.Deployment{}, &corev1.Service{}, &corev1.ServiceAccount{}, &policyv1.PodDisruptionBudget{}}
	server := w.object("FeedServer", "hub")
	if err := w.Get(ctx, client.ObjectKeyFromObject(server), server); err != nil {
		t.Fatal(err)
	}
	for _, o := range append(made, &corev1.Secret{}) {
		name := "hub-feed-server"
		if _, secret := o.(*corev1.Secret); secret {
			name = "hub-feed-server-jetstream"
		}
		if err := w.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, o); err != nil || !metav1.IsControlledBy(o, server) {
			t.Errorf("%T: %v, of %v", o, err, o.GetOwnerReferences())
		}
	}
	w.removeSite("hub")
	w.awaits("FeedServer", "hub", "Accepted", "False/SiteNotFound", `Site "hub"`, "nothing is served")
	for _, o := range made {
		eventually(t, "objects of the FeedServer go", func() error {
			err := w.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: "hub-feed-server"}, o)
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T is there: %v", o, err)
			}
			return nil
		})
	}
	w.applySite("hub", "hub")
	w.awaits("FeedServer", "hub", "Accepted", "True/Accepted")
	w.rollOut()
	w.awaits("FeedServer", "hub", "Ready", "True/Ready")
	w.awaits("Site", "hub", "FeedServerAvailable", "True/Available")

	w.remove(server)
	c := w.awaits("FeedConsumer", "viewer", "Ready", "False/NoFeedServer")
	says(t, c, `Site "hub"`, "FeedServer")
	eventually(t, "the Site has no feed servers", func() error {
		if c := find(conditionsOf(w.object("Site", "hub")), "FeedServerAvailable"); c != nil {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	w.awaits("Site", "hub", "Ready", "True/Ready")
}

// TestFeedServersOfOneSite: each has objects and credentials of its own; consumers get the address of the oldest that has one.
func TestFeedServersOfOneSite(t *testing.T) {
	w := newFeedWorld(t)
	w.rollOut()
	w.applyFeed("all", "")
	w.applyConsumer("viewer", "all", "WebSocket", "")
	w.applyConsumer("machines", "all", "NATS, notices: WIS2", ", filter: {messageTypes: [Notices]}")
	w.toldURL("viewer", "ws://hub-feed-server."+w.namespace+".svc/feeds/all/ws?consumer=viewer")
	w.awaits("FeedConsumer", "machines", "Ready", "False/NoAddress", "spec.url of a FeedServer")

	w.applyServer("public", `, replicas: 2, url: "https://archive.example.org"`)
	c := w.awaits("Site", "hub", "FeedServerAvailable", "False/Progressing")
	says(t, c, "of 2 FeedServers are not Ready", `"public"`)
	// Any pod may be the one that notifies machines.
	eventually(t, "the address for notifications", func() error {
		d := &appsv1.Deployment{}
		if err := w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "hub-feed-server"}, d); err != nil {
			return err
		}
		if args := d.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--notification-url=https://archive.example.org") {
			return fmt.Errorf("%q", args)
		}
		return nil
	})
	w.rollOut()
	w.rollOutServer("public")
	w.awaits("FeedServer", "public", "Ready", "True/Ready")
	w.awaits("Site", "hub", "FeedServerAvailable", "True/Available")
	w.toldURL("viewer", "wss://archive.example.org/feeds/all/ws?consumer=viewer")
	w.awaits("FeedConsumer", "machines", "Accepted", "True/Accepted")
	own, other := w.claims("hub-feed-server-jetstream"), w.claims("public-feed-server-jetstream")
	if own.Subject == other.Subject || own.Name == other.Name {
		t.Errorf("both are user %s, %q", own.Subject, own.Name)
	}
	// Figures are of each one's own pods.
	w.feedServer("feed-0").follow()
	eventually(t, "the figures", func() error {
		var hub, public v1alpha1.FeedServerStatus
		w.status("FeedServer", "hub", &hub)
		w.status("FeedServer", "public", &public)
		if hub.ConnectionCount == nil || *hub.ConnectionCount != 3 || *hub.EventStreamCount != 2 || *hub.BytesPerSecond != 1000 || public.ConnectionCount != nil {
			return fmt.Errorf("%+v, %+v", hub, public)
		}
		return nil
	})

	w.remove(w.object("FeedServer", "public"))
	w.toldURL("viewer", "ws://hub-feed-server."+w.namespace+".svc/feeds/all/ws?consumer=viewer")
	w.awaits("FeedConsumer", "machines", "Ready", "False/NoAddress")
}

// toldURL waits until a FeedConsumer's Secret names an address.
func (w *world) toldURL(consumer, url string) {
	w.t.Helper()
	eventually(w.t, consumer+" is told "+url, func() error {
		s := &corev1.Secret{}
		err := w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: consumer + "-consumer"}, s)
		if is := string(s.Data[bus.KeyURL]); err == nil && is != url {
			err = fmt.Errorf("it is told %s", is)
		}
		return err
	})
}

// TestFeedServerIsScaled: /scale asks, and the operator alone writes the Deployment.
func TestFeedServerIsScaled(t *testing.T) {
	w := newFeedWorld(t)
	w.applyServer("scaled", "") // does not set replicas
	server := &v1alpha1.FeedServer{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "scaled"}}
	replicas := func(want int32) *appsv1.Deployment {
		t.Helper()
		d := &appsv1.Deployment{}
		eventually(t, fmt.Sprintf("a Deployment of %d pods", want), func() error {
			err := w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "scaled-feed-server"}, d)
			if err == nil && *d.Spec.Replicas != want {
				err = fmt.Errorf("it is of %d", *d.Spec.Replicas)
			}
			return err
		})
		return d
	}
	replicas(2)
	scale := &autoscalingv1.Scale{}
	eventually(t, "a change of the scale", func() error {
		if err := w.SubResource("scale").Get(t.Context(), server, scale); err != nil {
			return err
		}
		if scale.Spec.Replicas != 2 {
			t.Errorf("%+v", scale.Spec)
		}
		scale.Spec.Replicas = 3
		return w.SubResource("scale").Update(t.Context(), server, client.WithSubResourceBody(scale)) // a status may be written meanwhile
	})
	d := replicas(3)
	w.rollOutServer("scaled")
	w.awaits("FeedServer", "scaled", "Ready", "True/Ready")
	eventually(t, "the scale", func() error {
		err := w.SubResource("scale").Get(t.Context(), server, scale)
		if err == nil && (scale.Status.Replicas != 3 || scale.Status.Selector != metav1.FormatLabelSelector(d.Spec.Selector)) {
			err = fmt.Errorf("%+v", scale.Status)
		}
		return err
	})
	w.applyServer("scaled", "") // applying again does not set replicas, and changes nothing
	replicas(3)
}

// TestReadersByCertificate: readers show certificates to a FeedServer that knows who signs them.
func TestReadersByCertificate(t *testing.T) {
	w := newFeedWorld(t)
	w.patchSite(`{"spec":{"readers":[{"name":"university","clientCertificate":{"names":["reader.university.example"]}}]}}`)
	w.awaits("Site", "hub", "Ready", "False/TLSNotConfigured", "tls.caSecretRef")
	w.applyServer("hub", ", replicas: 1, tls: {certificateSecretRef: {name: feeds-tls}, caSecretRef: {name: readers-ca}}")
	w.awaits("Site", "hub", "Ready", "True/Ready")
	w.awaits("FeedServer", "hub", "Ready", "False/SecretNotFound", `Secret "feeds-tls"`, "spec.tls.certificateSecretRef")
	w.secret("feeds-tls", map[string]string{"tls.crt": "a", "tls.key": "b", "ca.crt": "c"})
	w.applyServer("hub", ", replicas: 1, tls: {certificateSecretRef: {name: feeds-tls}, caSecretRef: {name: feeds-tls}}")
	w.awaits("FeedServer", "hub", "Ready", "False/Progressing")
	w.rollOut()
	w.awaits("FeedServer", "hub", "Ready", "True/Ready")
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
