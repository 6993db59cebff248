// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/workload"
)

// made waits until an object exists, and fails unless the pool owns it.
func made[T client.Object](w *world, pool, name string, o T) T {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%T %s", o, name), func() error {
		return w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, o)
	})
	gateway := w.object("IngestGateway", pool)
	if !metav1.IsControlledBy(o, gateway) || o.GetLabels()[workload.LabelManagedBy] != workload.FieldOwner {
		w.t.Errorf("%T %s is not the pool's: %v %v", o, name, o.GetOwnerReferences(), o.GetLabels())
	}
	return o
}

func TestPoolMakesItsObjects(t *testing.T) {
	w := newWorld(t)
	w.start()
	first, last, ports := w.ports()
	w.applySite("hub", "hub")
	w.applyPool("pool", ports+", replicas: 2")
	set := made(w, "pool", "pool", &appsv1.StatefulSet{})
	made(w, "pool", "pool", &corev1.ServiceAccount{})
	made(w, "pool", "pool", &policyv1.PodDisruptionBudget{})
	made(w, "pool", "pool-pods", &corev1.Service{})
	service := made(w, "pool", "pool", &corev1.Service{})
	protocols := map[corev1.Protocol][]int{}
	for _, p := range service.Spec.Ports {
		if p.NodePort != p.Port {
			t.Errorf("%s port %d has the node port %d", p.Protocol, p.Port, p.NodePort)
		}
		protocols[p.Protocol] = append(protocols[p.Protocol], int(p.Port))
	}
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		if all := protocols[protocol]; len(all) != last-first+1 || slices.Min(all) != first || slices.Max(all) != last {
			t.Errorf("the Service has the %s ports %v", protocol, all)
		}
	}
	if service.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		t.Errorf("external traffic policy %s", service.Spec.ExternalTrafficPolicy)
	}
	w.admits(set)

	w.rolledOut("pool", 0)
	c := w.awaits("IngestGateway", "pool", "Ready", "False/Progressing")
	eventually(t, "the message", func() error {
		if c = w.awaits("IngestGateway", "pool", "Ready", "False/Progressing"); !strings.Contains(c.Message, "receive") {
			return errors.New(c.Message)
		}
		return nil
	})
	says(t, c, "0 of 2 pods receive")
	w.readyPod("pool", "pool-0", "192.0.2.11")
	w.readyPod("pool", "pool-1", "192.0.2.12")
	w.gateway("pool", "pool-0").follow()
	w.gateway("pool", "pool-1").follow()
	w.rolledOut("pool", 2)
	w.awaits("IngestGateway", "pool", "Ready", "True/Ready")
	eventually(t, "figures", func() error {
		var s v1alpha1.IngestGatewayStatus
		w.status("IngestGateway", "pool", &s)
		if ptr.Deref(s.Replicas, 0) != 2 || ptr.Deref(s.ReadyReplicas, 0) != 2 || s.Datapath != "Kernel" || s.Selector == "" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})

	// Objects that were changed or removed from outside are restored.
	w.remove(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: w.namespace}})
	made(w, "pool", "pool", &policyv1.PodDisruptionBudget{})
	if err := w.Patch(t.Context(), set, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":5}}`))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the number of pods", func() error {
		if made(w, "pool", "pool", set); *set.Spec.Replicas != 2 {
			return fmt.Errorf("%d are asked for", *set.Spec.Replicas)
		}
		return nil
	})
}

// admits sees whether the namespace, which enforces the restricted Pod Security
// standard, takes the pods of a StatefulSet.
func (w *world) admits(set *appsv1.StatefulSet) {
	w.t.Helper()
	pod := &corev1.Pod{ObjectMeta: set.Spec.Template.ObjectMeta, Spec: set.Spec.Template.Spec}
	pod.Name, pod.Namespace = "admitted", w.namespace
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	if err := w.Create(w.t.Context(), pod, client.DryRunAll); err != nil {
		w.t.Error(err)
	}
}

// rolledOut says what the StatefulSet's controller would: all pods are ready.
func (w *world) rolledOut(pool string, replicas int32) {
	w.t.Helper()
	set := made(w, pool, pool, &appsv1.StatefulSet{})
	set.Status = appsv1.StatefulSetStatus{ObservedGeneration: set.Generation, Replicas: replicas, ReadyReplicas: replicas,
		CurrentReplicas: replicas, UpdatedReplicas: replicas, CurrentRevision: "one", UpdateRevision: "one"}
	if err := w.Status().Update(w.t.Context(), set); err != nil {
		w.t.Fatal(err)
	}
}

// TestPoolGoesOnWithoutANewSecret: a Site that names a Secret by a wrong name
// must not cost a pod that receives.
func TestPoolGoesOnWithoutANewSecret(t *testing.T) {
	w := newWorld(t)
	w.start()
	_, _, ports := w.ports()
	w.applySite("hub", "hub")
	w.applyPool("pool", ports)
	set := made(w, "pool", "pool", &appsv1.StatefulSet{})

	site := w.object("Site", "hub")
	if err := w.Patch(t.Context(), site, client.RawPatch("application/merge-patch+json",
		[]byte(`{"spec":{"objectStore":{"credentialsSecretRef":{"name":"typo"}}}}`))); err != nil {
		t.Fatal(err)
	}
	c := w.awaits("IngestGateway", "pool", "Ready", "False/SecretNotFound")
	says(t, c, `Secret "typo"`, "spec.objectStore.credentialsSecretRef", "create it")
	after := &appsv1.StatefulSet{}
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(set), after); err != nil {
		t.Fatal(err)
	}
	if after.Generation != set.Generation {
		t.Error("the StatefulSet was changed to mount a Secret that does not exist")
	}

	w.secret("typo", map[string]string{"accessKeyID": w.minio.AccessKeyID, "secretAccessKey": w.minio.SecretAccessKey})
	eventually(t, "the StatefulSet should follow once the Secret exists", func() error {
		if err := w.Get(t.Context(), client.ObjectKeyFromObject(set), after); err != nil || after.Generation == set.Generation {
			return errors.Join(err, errors.New("unchanged"))
		}
		return nil
	})
}

func TestPoolChangesHowSendersReachIt(t *testing.T) {
	w := newWorld(t)
	w.start()
	_, _, ports := w.ports()
	w.applySite("hub", "hub")
	w.applyPool("pool", ports)
	made(w, "pool", "pool", &corev1.Service{})
	w.applyPool("pool", ports+", service: {type: LoadBalancer, annotations: {lb.example/class: wide}}")
	tcp := made(w, "pool", "pool-tcp", &corev1.Service{})
	made(w, "pool", "pool-udp", &corev1.Service{})
	if tcp.Annotations["lb.example/class"] != "wide" {
		t.Errorf("annotations %v", tcp.Annotations)
	}
	w.gone("pool")
	w.applyPool("pool", ports+", service: {type: ClusterIP}")
	made(w, "pool", "pool", &corev1.Service{})
	w.gone("pool-tcp")
	w.gone("pool-udp")
	made(w, "pool", "pool-pods", &corev1.Service{})
}

func (w *world) gone(service string) {
	w.t.Helper()
	eventually(w.t, "no Service "+service, func() error {
		err := w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: service}, &corev1.Service{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %v", err)
		}
		return nil
	})
}

func TestPoolLeavesOthersAlone(t *testing.T) {
	w := newWorld(t)
	theirs := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: w.namespace},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 4222}}, Selector: map[string]string{"app": "theirs"}}}
	w.create(theirs)
	w.start()
	_, _, ports := w.ports()
	w.applySite("hub", "hub")
	w.applyPool("pool", ports)
	c := w.awaits("IngestGateway", "pool", "Ready", "False/Conflict")
	says(t, c, `a Service "pool"`, "not this pool's", "another name")
	is := &corev1.Service{}
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(theirs), is); err != nil || is.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("the Service of somebody else was changed: %v", err)
	}
	w.remove(theirs)
	made(w, "pool", "pool", &corev1.Service{})
	w.awaits("IngestGateway", "pool", "Ready", "False/Progressing")
}

func TestPoolsWithTheSameNodePorts(t *testing.T) {
	w := newWorld(t)
	w.start()
	first, last, ports := w.ports()
	// A Service that no pool knows of has one of the node ports: the API server says so.
	w.create(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: w.namespace},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80, NodePort: int32(first)}}}})
	w.applySite("hub", "hub")
	w.applyPool("pool", ports)
	c := w.awaits("IngestGateway", "pool", "Ready", "False/ApplyFailed")
	says(t, c, `Service "pool"`, "provided port is already allocated")
	w.remove(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: w.namespace}})
	made(w, "pool", "pool", &corev1.Service{})
	w.ages("IngestGateway", "pool")
	w.applyPool("late", ports)
	c = w.awaits("IngestGateway", "late", "Accepted", "False/Conflict")
	says(t, c, w.namespace+"/pool", fmt.Sprintf("%d-%d", first, last), "another range")
	w.remove(&v1alpha1.IngestGateway{ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: w.namespace}})
	w.awaits("IngestGateway", "late", "Accepted", "True/Accepted")
}

// TestWhatAPoolMayDo uses the credentials of a pool for everything that its
// gateways do, and then for what they must not.
func TestWhatAPoolMayDo(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.applySite("hub", "hub")
	w.applyPool("pool", ", service: {type: ClusterIP}")
	w.awaits("Site", "hub", "Ready", "True/Ready")
	g := w.gateway("pool", "pool-0")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	committer, err := stream.NewCommitter(g.nc, stream.CommitterConfig{Stream: "OBS_hub"})
	if err != nil {
		t.Fatal(err)
	}
	acks := make(chan error, 10)
	for i := range cap(acks) {
		m := nats.NewMsg(wire.ObservationSubject("hub", "magnetometer", "raw"))
		m.Data = []byte("datagrams")
		m.Header.Set(wire.HeaderMessageID, fmt.Sprint("pool-0/one/", i))
		if err := committer.Submit(ctx, m, func(_ stream.Ack, err error) { acks <- err }); err != nil {
			t.Fatal(err)
		}
	}
	for range cap(acks) {
		if err := <-acks; err != nil {
			t.Error("publish telemetry in batches:", err)
		}
	}
	for bucket, key := range map[string]string{wire.LedgerBucket("hub"): "some.key", wire.StatusBucket("hub"): wire.GatewayStatusKey("pool-1"), wire.NamesBucket("hub"): "some.key"} {
		kv := g.bucket(ctx, bucket)
		if _, err := kv.Put(ctx, key, nil); err != nil {
			t.Errorf("write to %s: %v", bucket, err)
		}
		if _, err := kv.Get(ctx, key); err != nil {
			t.Errorf("key of %s: %v", bucket, err)
		}
		if _, _, err := stream.Newest(ctx, g.js, bucket, key); err != nil {
			t.Errorf("key of %s, asked of the leader: %v", bucket, err)
		}
	}
	watcher, err := g.bucket(ctx, wire.RegistryBucket("hub")).WatchAll(ctx)
	if err != nil {
		t.Fatal("watch the registry:", err)
	}
	if entry := <-watcher.Updates(); entry == nil || entry.Key() != wire.RegistryCompleteKey {
		t.Errorf("the registry begins with %v", entry)
	}
	g.mayNot(ctx, map[string]func(context.Context) error{
		"make a consumer of what it sends": func(ctx context.Context) error {
			_, err := g.js.CreateOrUpdateConsumer(ctx, "OBS_hub", jetstream.ConsumerConfig{Durable: "own"})
			return err
		},
		"trim": func(ctx context.Context) error {
			s, err := g.js.Stream(ctx, "OBS_hub")
			if err != nil {
				return err
			}
			return s.Purge(ctx)
		},
		"move a cursor":     g.puts(wire.CursorBucket("hub")),
		"change the index":  g.puts(wire.IndexBucket("hub")),
		"say what is a gap": g.puts(wire.GapsBucket("hub")),
		"take the lease":    g.puts(wire.LeaseBucket("hub")),
		"describe":          g.puts(wire.DescriptionBucket("hub")),
		"decide": func(ctx context.Context) error {
			_, err := g.js.Publish(ctx, strings.ReplaceAll(wire.DecisionSubjects("hub"), ">", "camera"), nil)
			return err
		},
	})
}

// TestWhatAnArchivistMayDo does the same with the credentials of a Site's archivist.
func TestWhatAnArchivistMayDo(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.applySite("hub", "hub")
	w.awaits("Site", "hub", "Ready", "True/Ready")
	g := w.gateway("hub-archivist", "hub-archivist-0") // its Secret and inboxes have the names that a pool's would have
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i := range 10 {
		m := nats.NewMsg(wire.ObservationSubject("hub", "magnetometer", "raw"))
		m.Header.Set(wire.HeaderMessageID, fmt.Sprint("pool-0/one/", i))
		if _, err := w.nats.JetStream(t).PublishMsg(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	consumer, err := g.js.CreateOrUpdateConsumer(ctx, "OBS_hub", jetstream.ConsumerConfig{Durable: "archivist", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal("make a consumer:", err)
	}
	batch, err := consumer.Fetch(5, jetstream.FetchMaxWait(10*time.Second))
	if err != nil {
		t.Fatal("consume:", err)
	}
	for m := range batch.Messages() {
		if err := m.DoubleAck(ctx); err != nil {
			t.Error("acknowledge:", err)
		}
	}
	obs, err := g.js.Stream(ctx, "OBS_hub")
	if err != nil {
		t.Fatal(err)
	}
	if next, err := stream.NextOf(ctx, g.js, "OBS_hub", "", 7); err != nil || next != 7 {
		t.Error("ask the leader for a message:", next, err)
	}
	if err := obs.Purge(ctx, jetstream.WithPurgeSequence(5)); err != nil {
		t.Error("trim:", err)
	}
	ordered, err := g.js.OrderedConsumer(ctx, "OBS_hub", jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal("read in order:", err)
	}
	if _, err := ordered.Next(jetstream.FetchMaxWait(10 * time.Second)); err != nil {
		t.Error("read in order:", err)
	}
	for bucket, follows := range map[string]bool{wire.LedgerBucket("hub"): true, wire.StatusBucket("hub"): true, wire.CursorBucket("hub"): true, wire.GapsBucket("hub"): true,
		wire.DescriptionBucket("hub"): true, wire.NamesBucket("hub"): false, wire.IndexBucket("hub"): false} {
		kv, err := g.js.KeyValue(ctx, bucket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Put(ctx, "some.key", nil); err != nil {
			t.Errorf("write to %s: %v", bucket, err)
		}
		if !follows {
			if _, err := kv.Get(ctx, "some.key"); err != nil {
				t.Errorf("key of %s: %v", bucket, err)
			}
			continue
		}
		if keys, err := kv.Keys(ctx); err != nil || len(keys) != 1 {
			t.Errorf("keys of %s: %v %v", bucket, keys, err)
		}
	}
	leases, err := g.js.KeyValue(ctx, wire.LeaseBucket("hub"))
	if err != nil {
		t.Fatal(err)
	}
	lease, err := stream.AcquireLease(ctx, leases, wire.ArchivistLease, wire.Lease{Holder: g.pod, Incarnation: "one"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal("hold the lease:", err)
	}
	lease.Release(ctx)
	registry := g.bucket(ctx, wire.RegistryBucket("hub"))
	if _, err := registry.Create(ctx, wire.RegistryGuestKey("arctic", "camera"), nil); err != nil {
		t.Error("restore a guest's entry of the registry:", err)
	}
	g.mayNot(ctx, map[string]func(context.Context) error{"write an Instrument's entry of the registry": func(ctx context.Context) error {
		_, err := registry.Put(ctx, wire.RegistryInstrumentKey("camera"), nil)
		return err
	}})
}

func (g *gateway) bucket(ctx context.Context, name string) jetstream.KeyValue {
	g.t.Helper()
	kv, err := g.js.KeyValue(ctx, name)
	if err != nil {
		g.t.Fatal(err)
	}
	return kv
}

func (g *gateway) puts(bucket string) func(context.Context) error {
	return func(ctx context.Context) error {
		kv, err := g.js.KeyValue(ctx, bucket)
		if err == nil {
			_, err = kv.Put(ctx, "some.key", nil)
		}
		return err
	}
}

// mayNot tries what neither a gateway nor an archivist may do, and more.
func (g *gateway) mayNot(ctx context.Context, more map[string]func(context.Context) error) {
	g.t.Helper()
	obs, err := g.js.Stream(ctx, "OBS_hub")
	if err != nil {
		g.t.Fatal(err)
	}
	all := map[string]func(context.Context) error{
		"write the registry": g.puts(wire.RegistryBucket("hub")),
		"delete a stream":    func(ctx context.Context) error { return g.js.DeleteStream(ctx, "OBS_hub") },
		"change a stream": func(ctx context.Context) error {
			_, err := g.js.UpdateStream(ctx, obs.CachedInfo().Config)
			return err
		},
		"make a stream": func(ctx context.Context) error {
			_, err := g.js.CreateStream(ctx, jetstream.StreamConfig{Name: "MORE", Subjects: []string{"more.>"}})
			return err
		},
		"delete messages": func(ctx context.Context) error { return obs.DeleteMsg(ctx, 9) },
		"publish for another Site": func(ctx context.Context) error {
			_, err := g.js.Publish(ctx, wire.NoticeSubject("other", "camera"), nil)
			return err
		},
	}
	maps.Copy(all, more)
	for what, try := range all {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		if err := try(ctx); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrPermissionViolation) {
			g.t.Errorf("%s may %s: %v", g.pod, what, err)
		}
		cancel()
	}
	if _, err := g.nc.SubscribeSync(wire.NoticeSubjects("hub")); err == nil {
		err = g.nc.FlushTimeout(10 * time.Second)
		if last := g.nc.LastError(); !errors.Is(last, nats.ErrPermissionViolation) {
			g.t.Errorf("%s may listen to all notices: %v, %v", g.pod, last, err)
		}
	}
}
