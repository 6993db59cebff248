// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/workload"
)

// newFeedWorld has a Site with a FeedServer of one pod, a pool and the instruments camera
// (group auroras), mag-1 and mag-2 (group fields).
func newFeedWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.startFeedWorld()
	return w
}

func (w *world) startFeedWorld() {
	w.t.Helper()
	w.start()
	w.applySite("hub", "hub")
	w.applyServer("hub", ", replicas: 1")
	w.applyPool("pool", ", service: {type: ClusterIP}")
	for i, name := range []string{"camera", "mag-1", "mag-2"} {
		group := "fields"
		if name == "camera" {
			group = "auroras"
		}
		w.applyLabeled(name, 30100+i, group)
	}
	w.awaits("Site", "hub", "JetStreamReachable", "True/Reachable")
}

func (w *world) applyLabeled(name string, port int, group string) {
	w.t.Helper()
	w.apply(fmt.Sprintf(`
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: %s, labels: {group: %s}}
spec: {siteRef: {name: hub}, type: AllSkyCamera, listeners: [{name: tcp, protocol: TCP, port: %d}]}
`, name, group, port))
}

func (w *world) patchSite(patch string) {
	w.t.Helper()
	if err := w.Patch(w.t.Context(), w.site("hub"), client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) applyFeed(name, spec string) {
	w.t.Helper()
	w.apply(fmt.Sprintf(`
apiVersion: substorm.dev/v1alpha1
kind: Feed
metadata: {name: %s}
spec: {siteRef: {name: hub}%s}
`, name, spec))
}

func (w *world) applyConsumer(name, feed, delivery, spec string) {
	w.t.Helper()
	w.apply(fmt.Sprintf(`
apiVersion: substorm.dev/v1alpha1
kind: FeedConsumer
metadata: {name: %s}
spec: {feedRef: {name: %s}, delivery: {type: %s}%s}
`, name, feed, delivery, spec))
}

// rollOut says of the Deployment of the FeedServer hub what a cluster would.
func (w *world) rollOut() {
	w.t.Helper()
	w.rollOutServer("hub")
}

func (w *world) rollOutServer(name string) {
	w.t.Helper()
	d := &appsv1.Deployment{}
	eventually(w.t, "the Deployment", func() error {
		if err := w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: workload.FeedServerName(name)}, d); err != nil {
			return err
		}
		return w.setRolledOut(w.t.Context(), d)
	})
}

func (w *world) setRolledOut(ctx context.Context, d *appsv1.Deployment) error {
	n := *d.Spec.Replicas
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, ReadyReplicas: n, UpdatedReplicas: n, AvailableReplicas: n}
	return w.Status().Update(ctx, d)
}

// rollOutArchivists says of archivists' Deployments what a cluster would, a little later than they change, until ctx ends.
func (w *world) rollOutArchivists(ctx context.Context) {
	for ; ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
		var all appsv1.DeploymentList
		if w.List(ctx, &all, client.InNamespace(w.namespace), client.MatchingLabels{workload.LabelName: workload.ArchivistProgram}) != nil {
			continue
		}
		for i := range all.Items {
			if d := &all.Items[i]; d.Status.ObservedGeneration < d.Generation {
				_ = w.setRolledOut(ctx, d) // else at the next look
			}
		}
	}
}

// feedServer acts as a pod of feed-server on the bus, with the credentials that the operator issued for it.
type feedServer struct {
	*world
	pod string
	js  jetstream.JetStream

	mu       sync.Mutex
	problems map[string]string
}

func (w *world) feedServer(pod string) *feedServer {
	w.t.Helper()
	secret := w.awaitSecret("hub-feed-server-jetstream", workload.KeyUserCreds)
	js := w.connect(secret.Data[workload.KeyUserCreds], "_INBOX_hub-feed-server_hub")
	return &feedServer{world: w, pod: pod, js: js}
}

func (w *world) awaitSecret(name, key string) *corev1.Secret {
	w.t.Helper()
	s := &corev1.Secret{}
	eventually(w.t, "Secret "+name, func() error {
		if err := w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, s); err != nil {
			return err
		}
		if len(s.Data[key]) == 0 {
			return fmt.Errorf("it has no %s", key)
		}
		return nil
	})
	return s
}

func (w *world) connect(creds []byte, inbox string) jetstream.JetStream {
	w.t.Helper()
	nc, err := stream.Connect(w.t.Context(), stream.Config{Servers: []string{w.nats.URL()}, Credentials: creds, TLS: w.nats.ClientTLS(), InboxPrefix: inbox})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	if err := stream.WaitConnected(w.t.Context(), nc); err != nil {
		w.t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		w.t.Fatal(err)
	}
	return js
}

// follow reports every interval that the pod runs the newest registry, until the
// returned function is called.
func (s *feedServer) follow() (stop func()) {
	s.t.Helper()
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			if err := s.report(); err != nil && s.t.Context().Err() == nil {
				s.t.Logf("report of %s: %v", s.pod, err)
			}
			select {
			case <-quit:
				return
			case <-time.After(wire.GatewayReportInterval / 4):
			}
		}
	}()
	var once sync.Once
	stop = func() { once.Do(func() { close(quit); <-done }) }
	s.t.Cleanup(stop)
	return stop
}

func (s *feedServer) report() error {
	ctx := s.t.Context()
	registry, err := s.js.KeyValue(ctx, wire.RegistryBucket("hub"))
	if err != nil {
		return err
	}
	value, err := registry.Get(ctx, wire.RegistryCompleteKey)
	if err != nil {
		return err
	}
	complete, err := wire.Decode[wire.RegistryComplete](value.Value())
	if err != nil {
		return err
	}
	s.mu.Lock()
	status := wire.FeedServerStatus{Pod: s.pod, FeedServer: "hub", Incarnation: "one", StartedAt: time.Now(), ReportedAt: time.Now(),
		Revision: complete.Revision, Connections: 3, EventStreams: 2, BytesPerSecond: 1000, Problems: s.problems}
	s.mu.Unlock()
	return s.put(wire.FeedServerStatusKey(s.pod), status)
}

func (s *feedServer) put(key string, record any) error {
	data, err := wire.Encode(record)
	if err != nil {
		return err
	}
	kv, err := s.js.KeyValue(s.t.Context(), wire.StatusBucket("hub"))
	if err == nil {
		_, err = kv.Put(s.t.Context(), key, data)
	}
	return err
}

// says reports about a consumer.
func (s *feedServer) says(consumer string, status wire.ConsumerStatus) {
	s.t.Helper()
	status.Incarnation, status.ReportedAt = "one", time.Now()
	if err := s.put(wire.ConsumerStatusKey(consumer, s.pod), status); err != nil {
		s.t.Fatal(err)
	}
}

// publish sends what a gateway would.
func (w *world) publish(js jetstream.JetStream, subject string, texts ...string) {
	w.t.Helper()
	for _, text := range texts {
		if _, err := js.Publish(w.t.Context(), subject, []byte(text)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// client is a consumer that has nothing but its Secret.
type natsClient struct {
	*world
	js      jetstream.JetStream
	nc      *nats.Conn
	streams []string
	durable string
}

func (w *world) natsClient(consumer string) *natsClient {
	w.t.Helper()
	return w.connectAs(w.awaitSecret(consumer+"-consumer", workload.KeyUserCreds))
}

// connectAs connects with what a Secret holds.
func (w *world) connectAs(secret *corev1.Secret) *natsClient {
	w.t.Helper()
	data := secret.Data
	ca := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	if !ca.RootCAs.AppendCertsFromPEM(data[workload.KeyCA]) {
		w.t.Errorf("ca.crt holds no authority")
	}
	nc, err := nats.Connect(string(data[bus.KeyNATSURL]), nats.UserCredentialBytes(data[workload.KeyUserCreds]),
		nats.CustomInboxPrefix(string(data[bus.KeyInboxPrefix])), nats.Secure(ca), nats.PermissionErrOnSubscribe(true))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	js, err := jetstream.NewWithAPIPrefix(nc, string(data[bus.KeyAPIPrefix]))
	if err != nil {
		w.t.Fatal(err)
	}
	return &natsClient{w, js, nc, strings.Split(string(data[bus.KeyStreams]), ","), string(data[bus.KeyDurable])}
}

// takes fetches n messages of a stream, acknowledges them, and returns what they say.
func (c *natsClient) takes(stream string, n int) []string {
	c.t.Helper()
	consumer, err := c.js.Consumer(c.t.Context(), stream, c.durable)
	if err != nil {
		c.t.Fatalf("durable of %s: %v", stream, err)
	}
	var texts []string
	eventually(c.t, fmt.Sprintf("%d messages of %s", n, stream), func() error {
		batch, err := consumer.Fetch(n-len(texts), jetstream.FetchMaxWait(time.Second))
		if err != nil {
			return err
		}
		for m := range batch.Messages() {
			if err := m.DoubleAck(c.t.Context()); err != nil {
				return fmt.Errorf("acknowledge: %w", err)
			}
			texts = append(texts, string(m.Data()))
		}
		if len(texts) < n {
			return fmt.Errorf("there are %q: %w", texts, batch.Error())
		}
		return nil
	})
	return texts
}

// durableName returns the name of a FeedConsumer's durables, as its Secret has it now.
func (w *world) durableName(consumer string) string {
	w.t.Helper()
	return string(w.awaitSecret(consumer+"-consumer", workload.KeyUserCreds).Data[bus.KeyDurable])
}

// durable waits for a FeedConsumer's durable, and returns what the server says of it.
func (w *world) durable(stream, consumer string) *jetstream.ConsumerInfo {
	w.t.Helper()
	var info *jetstream.ConsumerInfo
	eventually(w.t, "durable of "+consumer+" on "+stream, func() error {
		c, err := w.nats.JetStream(w.t).Consumer(w.t.Context(), stream, w.durableName(consumer))
		if err == nil {
			info = c.CachedInfo()
		}
		return err
	})
	return info
}

// gone waits until something is not there.
func (w *world) vanishes(what string, look func() error, absent error) {
	w.t.Helper()
	eventually(w.t, what+" should go", func() error {
		if err := look(); !errors.Is(err, absent) {
			return fmt.Errorf("it is there: %v", err)
		}
		return nil
	})
}
