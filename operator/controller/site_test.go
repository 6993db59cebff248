// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

// marker reads the marker in the bucket.
func (w *world) marker(code string) wire.SiteMarker {
	w.t.Helper()
	body, _, err := w.minio.Bucket(w.t, w.bucket).Get(w.t.Context(), wire.SiteMarkerKey(code), objectstore.All)
	if err != nil {
		w.t.Fatal(err)
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := wire.Decode[wire.SiteMarker](data)
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func (w *world) stream(name string) jetstream.StreamConfig {
	w.t.Helper()
	s, err := w.nats.JetStream(w.t).Stream(w.t.Context(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	return s.CachedInfo().Config
}

func (w *world) site(name string) *v1alpha1.Site {
	return &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}}
}

func TestSiteMakesWhatItNeeds(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.applySite("hub", "hub")
	w.awaits("Site", "hub", "Ready", "True/Ready")
	w.awaits("Site", "hub", "Durable", "True/Synced")

	m := w.marker("hub")
	if m.UID != string(w.object("Site", "hub").GetUID()) || m.Namespace != w.namespace || m.Name != "hub" || m.Cluster == "" {
		t.Errorf("marker in the bucket: %+v", m)
	}
	for name, subjects := range map[string][]string{"OBS_hub": {"obs.hub.>"}, "NOTICE_hub": wire.NoticeStreamSubjects("hub")} {
		cfg := w.stream(name)
		want := jetstream.StreamConfig{
			Subjects: subjects, MaxBytes: 64 << 20, Replicas: 1, Duplicates: 2 * time.Minute,
			Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, Storage: jetstream.FileStorage,
			AllowDirect: true, AllowAtomicPublish: true, MaxAge: 0,
		}
		got := jetstream.StreamConfig{
			Subjects: cfg.Subjects, MaxBytes: cfg.MaxBytes, Replicas: cfg.Replicas, Duplicates: cfg.Duplicates,
			Retention: cfg.Retention, Discard: cfg.Discard, Storage: cfg.Storage,
			AllowDirect: cfg.AllowDirect, AllowAtomicPublish: cfg.AllowAtomicPublish, MaxAge: cfg.MaxAge,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("stream %s (-want +got):\n%s", name, diff)
		}
		if inStream, err := wire.Decode[wire.SiteMarker]([]byte(cfg.Metadata[wire.StreamMetadataMarker])); err != nil || inStream != m {
			t.Errorf("marker of stream %s: %+v, %v", name, inStream, err)
		}
	}
	for name, ttl := range map[string]time.Duration{"REGISTRY_hub": 0, "LEDGER_hub": 0, "STATUS_hub": 0, "CURSOR_hub": 0, "NAMES_hub": 0, "INDEX_hub": 0, "GAPS_hub": 0, "DESCRIPTIONS_hub": 0, "DOWNLOADS_hub": 0, "LEASE_hub": wire.LeaseTTL} {
		if cfg := w.stream("KV_" + name); cfg.MaxAge != ttl || cfg.MaxMsgsPerSubject != 1 {
			t.Errorf("bucket %s: expiry %v, history %d", name, cfg.MaxAge, cfg.MaxMsgsPerSubject)
		}
	}

	// A larger stream is a change of the stream and of nothing else.
	site := w.site("hub")
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"jetStream":{"observations":{"maxSize":"128Mi"}}}}`))
	if err := w.Patch(t.Context(), site, patch); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stream should grow", func() error {
		if is := w.stream("OBS_hub").MaxBytes; is != 128<<20 {
			return fmt.Errorf("it holds %d bytes", is)
		}
		return nil
	})
	w.awaits("Site", "hub", "Ready", "True/Ready")
}

// A stream from before there were gap records gets their subject where it is, and
// keeps what it holds.
func TestStreamOfAnOlderOperator(t *testing.T) {
	w := newWorld(t)
	js := w.nats.JetStream(t)
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "NOTICE_hub", Subjects: []string{"notice.hub.>"},
		MaxBytes: 64 << 20, Discard: jetstream.DiscardNew, Storage: jetstream.FileStorage})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), wire.NoticeSubject("hub", "camera"), []byte("kept")); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.applySite("hub", "hub")
	w.awaits("Site", "hub", "Ready", "True/Ready")
	if _, err := js.Publish(t.Context(), wire.GapSubject("hub", "model"), []byte("a gap")); err != nil {
		t.Errorf("the stream does not take gap records: %v", err)
	}
	s, err := js.Stream(t.Context(), "NOTICE_hub")
	if err != nil || s.CachedInfo().State.Msgs != 2 {
		t.Errorf("what was announced is gone: %v", err)
	}
}

// Each deletion has an event, and the condition names all of them, also when another operator takes over.
func TestSiteLosesStreamsInTurn(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.applySite("hub", "hub")
	w.awaits("Site", "hub", "Ready", "True/Ready")
	js := w.nats.JetStream(t)
	lose := func(bucket string) {
		t.Helper()
		eventually(t, "the deletion of "+bucket+" is told", func() error {
			var s v1alpha1.SiteStatus
			w.status("Site", "hub", &s)
			if f := finding.Of(s.Conditions, "StreamsIntact"); !strings.Contains(f.Message, "KV_"+bucket) {
				_ = js.DeleteKeyValue(t.Context(), bucket) // again where no operator knew that it existed
				return errors.New(f.Message)
			}
			return nil
		})
		w.sawEvent("hub", "StreamsIntact/KV_"+bucket, "Recreated", "Warning")
	}
	lose("LEDGER_hub")
	lose("CURSOR_hub")
	w.stop()
	w.start()
	lose("GAPS_hub")
	c := w.awaits("Site", "hub", "StreamsIntact", "False/Recreated")
	says(t, c, "KV_CURSOR_hub, KV_GAPS_hub, KV_LEDGER_hub")
}

// TestSiteLosesStreamsWhileNoOperatorRuns: an operator that is restarted knows which streams existed.
func TestSiteLosesStreamsWhileNoOperatorRuns(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.applySite("hub", "hub")
	w.awaits("Site", "hub", "Ready", "True/Ready")
	eventually(t, "the streams are in the status", func() error {
		var s v1alpha1.SiteStatus
		if w.status("Site", "hub", &s); s.JetStream == nil || !slices.Contains(s.JetStream.Streams, "OBS_hub") {
			return fmt.Errorf("status.jetStream is %v", s.JetStream)
		}
		return nil
	})
	w.stop()
	js := w.nats.JetStream(t)
	if err := errors.Join(js.DeleteStream(t.Context(), "OBS_hub"), js.DeleteKeyValue(t.Context(), "LEDGER_hub")); err != nil {
		t.Fatal(err)
	}
	w.start()
	c := w.awaits("Site", "hub", "StreamsIntact", "False/Recreated")
	says(t, c, "KV_LEDGER_hub", "OBS_hub")
	if strings.Contains(c.Message, "NOTICE_hub") {
		t.Errorf("it names streams that stand: %s", c.Message)
	}
}

func TestSiteLosesAStream(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.applySite("hub", "hub")
	w.applyPool("pool", ", service: {type: ClusterIP}")
	w.applyInstrument("camera", 30100, "")
	g := w.gateway("pool", "pool-0")
	before := g.awaitPort("camera", 30100)
	if err := w.nats.JetStream(t).DeleteKeyValue(t.Context(), "REGISTRY_hub"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the registry should be written anew", func() error {
		after, err := g.entry("camera")
		if err != nil {
			return err
		}
		if after.Revision <= before.Revision {
			t.Fatalf("the revision fell from %d to %d", before.Revision, after.Revision)
		}
		return nil
	})
	c := w.awaits("Site", "hub", "StreamsIntact", "False/Recreated")
	says(t, c, "KV_REGISTRY_hub", "has deleted", "lost")
	if strings.Contains(c.Message, "OBS_hub") {
		t.Errorf("it names streams that stand: %s", c.Message)
	}
}

func TestSecretMissingThenCreated(t *testing.T) {
	w := newWorld(t)
	key := client.ObjectKey{Namespace: w.namespace, Name: "s3"}
	secret := &corev1.Secret{}
	if err := w.Get(t.Context(), key, secret); err != nil {
		t.Fatal(err)
	}
	w.remove(secret)
	w.start()
	w.applySite("hub", "hub")
	c := w.awaits("Site", "hub", "ObjectStoreReachable", "False/SecretNotFound")
	says(t, c, `Secret "s3"`, "spec.objectStore.credentialsSecretRef", "create it", "accessKeyID")
	w.awaits("Site", "hub", "JetStreamReachable", "True/Reachable")
	w.awaits("Site", "hub", "Stalled", "True/SecretNotFound")

	w.secret("s3", map[string]string{"accessKeyID": w.minio.AccessKeyID})
	c = w.awaits("Site", "hub", "ObjectStoreReachable", "False/SecretIncomplete")
	says(t, c, `Secret "s3"`, "has no secretAccessKey")

	if err := w.Patch(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s3", Namespace: w.namespace}},
		client.RawPatch("application/merge-patch+json", []byte(`{"stringData":{"secretAccessKey":"wrong-secret"}}`))); err != nil {
		t.Fatal(err)
	}
	c = w.awaits("Site", "hub", "ObjectStoreReachable", "False/AccessDenied")
	says(t, c, w.minio.URL(), fmt.Sprintf("%q", w.bucket), "check the keys")

	if err := w.Patch(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s3", Namespace: w.namespace}},
		client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"stringData":{"secretAccessKey":%q}}`, w.minio.SecretAccessKey))); err != nil {
		t.Fatal(err)
	}
	w.awaits("Site", "hub", "Ready", "True/Ready")
}

func TestAccountKeyThatIsNone(t *testing.T) {
	w := newWorld(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "account", Namespace: w.namespace}}
	if err := w.Patch(t.Context(), secret, client.RawPatch("application/merge-patch+json", []byte(`{"stringData":{"account.seed":"SUAnonsense"}}`))); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.applySite("hub", "hub")
	w.applyPool("pool", ", service: {type: ClusterIP}")
	c := w.awaits("Site", "hub", "JetStreamReachable", "False/SecretIncomplete")
	says(t, c, `Secret "account"`, "account.seed")
	c = w.awaits("IngestGateway", "pool", "Ready", "False/SecretIncomplete")
	says(t, c, `Secret "account"`, "account.seed")
}

func TestBackendsAwayAndBack(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, testenv.MinIO(t, testenv.MinIOOptions{TLS: true}))
	w.start()
	w.applySite("hub", "hub")
	w.applyPool("pool", ", service: {type: ClusterIP}")
	w.applyInstrument("camera", 30100, "")
	w.awaits("Site", "hub", "Ready", "True/Ready")
	g := w.gateway("pool", "pool-0")
	g.follow()
	g.awaitPort("camera", 30100)
	w.awaits("Instrument", "camera", "Ready", "True/Ready")

	w.nats.Stop()
	c := w.awaits("Site", "hub", "JetStreamReachable", "False/Unreachable")
	says(t, c, w.nats.URL(), "spec.jetStream.servers")
	w.awaits("Site", "hub", "Ready", "False/Unreachable")
	w.awaits("Instrument", "camera", "Programmed", "True/Programmed")
	w.applyInstrument("camera", 30101, "") // while the gateways cannot be notified
	c = w.awaits("Instrument", "camera", "Programmed", "False/Unreachable")
	says(t, c, "waits for the registry", `Site "hub"`)

	w.nats.Start()
	w.awaits("Site", "hub", "Ready", "True/Ready")
	g.awaitPort("camera", 30101)
	w.awaits("Instrument", "camera", "Ready", "True/Ready")

	w.minio.Pause() // takes connections and never answers
	c = w.awaits("Site", "hub", "ObjectStoreReachable", "False/Unreachable")
	says(t, c, w.minio.URL())
	w.applyInstrument("camera", 30102, "") // a dead store keeps nothing else waiting
	g.awaitPort("camera", 30102)
	w.awaits("Instrument", "camera", "Ready", "True/Ready")
	w.minio.Continue()
	w.awaits("Site", "hub", "Ready", "True/Ready")
}

func TestCodeClaimedTwice(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.applySite("hub", "hub")
	w.awaits("Site", "hub", "Ready", "True/Ready")
	ours := w.marker("hub")
	w.ages("Site", "hub")
	w.applySite("late", "hub")
	c := w.awaits("Site", "late", "Accepted", "False/Conflict")
	says(t, c, `code "hub"`, w.namespace+"/hub", "another spec.code")
	w.awaits("Site", "late", "ObjectStoreReachable", "Unknown/NotTried")
	w.awaits("Site", "hub", "Ready", "True/Ready")

	// The code is free among Sites, and the bucket still belongs to the other one.
	w.removeSite("hub")
	c = w.awaits("Site", "late", "Accepted", "False/Conflict")
	eventually(t, "the marker should be named", func() error {
		c = w.awaits("Site", "late", "Accepted", "False/Conflict")
		if !strings.Contains(c.Message, fmt.Sprintf("bucket %q", w.bucket)) {
			return errors.New(c.Message)
		}
		return nil
	})
	says(t, c, w.namespace+"/hub", v1alpha1.AnnotationTakeOver+"="+ours.UID)
	if w.marker("hub") != ours {
		t.Fatal("the marker of the other Site was replaced")
	}
	// There is no archivist for it either, though that of the other Site is still there, as until the garbage collector removes it.
	w.leaveArchivist(ours.UID)
	if err := w.Patch(t.Context(), w.site("late"), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"jetStream":{"notices":{"maxSize":"65Mi"}}}}`))); err != nil {
		t.Fatal(err)
	}
	w.awaits("Site", "late", "Accepted", "False/Conflict")
	archivist, account := &appsv1.Deployment{}, &corev1.ServiceAccount{}
	for _, o := range []client.Object{archivist, account} {
		switch err := w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "hub-archivist"}, o); {
		case apierrors.IsNotFound(err) && o == client.Object(account):
		case err != nil || string(metav1.GetControllerOf(o).UID) != ours.UID:
			t.Errorf("%T of an archivist for the bucket of another Site: %v, %v", o, o.GetOwnerReferences(), err)
		}
	}
	w.remove(archivist)

	if err := w.Patch(t.Context(), w.site("late"), client.RawPatch("application/merge-patch+json",
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationTakeOver, ours.UID))); err != nil {
		t.Fatal(err)
	}
	w.awaits("Site", "late", "Ready", "True/Ready")
	if m := w.marker("hub"); m.Name != "late" {
		t.Errorf("after it was taken over the marker says %+v", m)
	}
}

// leaveArchivist has a Site that was deleted have an archivist, whether it was applied while the Site was deleted or not.
func (w *world) leaveArchivist(uid string) {
	w.t.Helper()
	labels := map[string]string{"app": "hub-archivist"}
	err := w.Create(w.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "hub-archivist", Namespace: w.namespace, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "Site", Name: "hub", UID: types.UID(uid), Controller: new(true)}}},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "archivist", Image: "archivist"}}}}},
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		w.t.Fatal(err)
	}
}

func TestSiteMadeAgainContinuesItsArchive(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.applySite("hub", "hub")
	w.awaits("Site", "hub", "Ready", "True/Ready")
	if _, err := w.nats.JetStream(t).Publish(t.Context(), wire.NoticeSubject("hub", "camera"), []byte("kept")); err != nil {
		t.Fatal(err)
	}
	first := w.marker("hub")
	w.removeSite("hub")
	w.applySite("hub", "hub")
	w.awaits("Site", "hub", "Ready", "True/Ready")
	if m := w.marker("hub"); m.UID == first.UID || m.UID != string(w.object("Site", "hub").GetUID()) {
		t.Errorf("marker %+v after %+v", m, first)
	}
	s, err := w.nats.JetStream(t).Stream(t.Context(), "NOTICE_hub")
	if err != nil || s.CachedInfo().State.Msgs != 1 {
		t.Errorf("what was announced is gone: %v", err)
	}
}

func TestStreamOfAnotherSite(t *testing.T) {
	w := newWorld(t)
	theirs, err := wire.Encode(wire.SiteMarker{Code: "hub", UID: "u-1", Namespace: "north", Name: "hub", Cluster: "elsewhere"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.nats.JetStream(t).CreateStream(t.Context(), jetstream.StreamConfig{Name: "OBS_hub", Subjects: []string{"obs.hub.>"},
		Metadata: map[string]string{wire.StreamMetadataMarker: string(theirs)}})
	if err != nil {
		t.Fatal(err)
	}
	w.start()
	w.applySite("hub", "hub")
	c := w.awaits("Site", "hub", "Accepted", "False/Conflict")
	says(t, c, "stream OBS_hub", "north/hub of another cluster", "substorm.dev/take-over=u-1")
	if _, err := w.nats.JetStream(t).Stream(context.Background(), "NOTICE_hub"); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("a stream was made beside another Site's: %v", err)
	}
}

func TestOperatorRestartChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.applySite("hub", "hub")
	w.applyPool("pool", ", service: {type: ClusterIP}")
	w.applyInstrument("camera", 30100, ", cadence: {interval: 1h}")
	g := w.gateway("pool", "pool-0")
	g.follow()
	g.awaitPort("camera", 30100)
	g.received("camera", 0, 3)
	w.awaits("Instrument", "camera", "DataFlowing", "True/Flowing")
	w.awaits("Instrument", "camera", "Ready", "True/Ready")
	w.awaits("Site", "hub", "DataFlowing", "True/Flowing")
	w.awaits("Site", "hub", "Ready", "True/Ready")
	complete, err := g.complete()
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{}
	if err := w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "pool-jetstream"}, secret); err != nil {
		t.Fatal(err)
	}
	w.stop()
	before := map[string][]metav1.Condition{}
	for _, kind := range []string{"Site/hub", "Instrument/camera"} {
		before[kind] = w.conditions(kind)
	}

	w.start()
	w.applyInstrument("second", 30101, "") // its condition shows that the new operator came to it
	g.awaitPort("second", 30101)
	w.awaits("Instrument", "second", "Ready", "True/Ready")
	for kind, was := range before {
		for _, c := range w.conditions(kind) {
			if old := find(was, c.Type); kind == "Instrument/camera" && (old == nil || old.LastTransitionTime != c.LastTransitionTime) {
				t.Errorf("%s: %s changed over the restart: %+v, then %+v", kind, c.Type, old, c)
			}
			if old := find(was, c.Type); c.Type == "Ready" && old.LastTransitionTime != c.LastTransitionTime {
				t.Errorf("%s: Ready changed over the restart", kind)
			}
		}
	}
	if again, err := g.complete(); err != nil || again.Revision != complete.Revision+1 || again.Count != 2 {
		t.Errorf("the registry went from %+v to %+v: %v", complete, again, err)
	}
	after := &corev1.Secret{}
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(secret), after); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(secret.Data, after.Data); diff != "" {
		t.Error("the pool's credentials were issued anew")
	}
}

func (w *world) conditions(kindName string) []metav1.Condition {
	w.t.Helper()
	kind, name, _ := strings.Cut(kindName, "/")
	return conditionsOf(w.object(kind, name))
}
