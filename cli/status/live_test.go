// SPDX-License-Identifier: Apache-2.0

package status

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/cli/kube"
	"github.com/substorm/substorm/cli/kube/kubetest"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// TestLiveFigures: the report has what gateways report now, where the status has what they reported ten minutes ago; and
// without the right to read it, or without JetStream, what the status has.
func TestLiveFigures(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{Operator: true, TLS: true, Domain: "demo"})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, "demo")
	cluster := kubetest.Start(t)
	s, i := site(allOfSite...), anInstrument("mag-1", nil, allOfInstrument...)
	nats := v1alpha1.LocalReference{Name: "nats-tls"}
	s.Spec.JetStream = v1alpha1.JetStream{Servers: []string{server.URL()}, TLS: &v1alpha1.TLS{CertificateSecretRef: &nats, CASecretRef: &nats},
		AccountKeySecretRef: &v1alpha1.LocalReference{Name: "account"}, CommandAccountKeySecretRef: &v1alpha1.LocalReference{Name: "commands"}}
	i.Status.ReceivedToday = &v1alpha1.DayCounts{Day: string(wire.DayOf(time.Now())), ObjectCount: 1, Bytes: 10}
	status := i.Status
	f := feedServer("public", new(int32(1)), allOfGateway...)
	served := f.Status
	m := mirrors()[2]
	m.Spec.Rsync = &v1alpha1.MirrorRsync{Transport: v1alpha1.MirrorRsyncOverDaemon, Daemon: &v1alpha1.MirrorRsyncDaemon{Address: "rsync.example:873", Module: "aurora"}}
	m.Spec.Continuous = &v1alpha1.MirrorContinuous{}
	mirrored := m.Status
	cluster.Create(t, &s, &i, &f, &m, secret("nats-tls", natsTLS(t, server.CA)))
	s.Status.Conditions, i.Status = slices.Clone(allOfSite), status
	f.Status, m.Status = served, mirrored
	for _, err := range []error{cluster.Status().Update(t.Context(), &s), cluster.Status().Update(t.Context(), &i), cluster.Status().Update(t.Context(), &f), cluster.Status().Update(t.Context(), &m)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	opened, err := kube.Open(kube.Flags{Kubeconfig: cluster.Kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	opened.Namespace = "" // all
	figures := newLive(opened)
	defer figures.close()
	look := func(objects int64, stale string) Report {
		t.Helper()
		r, err := read(t.Context(), figures, "", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		said := r.Sites[0].FiguresStale
		if r.Instruments[0].Objects != objects || (stale == "") != (said == "") || !strings.Contains(said, stale) {
			t.Errorf("%d objects, figures are stale: %q; want %d, %q", r.Instruments[0].Objects, said, objects, stale)
		}
		return r
	}

	kv, err := js.KeyValue(t.Context(), wire.StatusBucket("demo"))
	if err != nil {
		t.Fatal(err)
	}
	received := time.Now().Add(-time.Second)
	for pod, objects := range map[string]uint64{"demo-0": 3, "demo-1": 4} {
		data, err := wire.Encode(wire.InstrumentStatus{ReportedAt: received, LastReceived: received, Day: wire.DayOf(received), Objects: objects, Bytes: 10 * objects})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Put(t.Context(), wire.InstrumentStatusKey("mag-1", pod), data); err != nil {
			t.Fatal(err)
		}
	}
	for key, report := range map[string]any{
		wire.FeedServerStatusKey("public-0"):        wire.FeedServerStatus{Pod: "public-0", FeedServer: "public", Incarnation: "one", Connections: 5},
		wire.FeedServerStatusKey("internal-0"):      wire.FeedServerStatus{Pod: "internal-0", FeedServer: "internal", Incarnation: "one", Connections: 9},
		wire.ConsumerStatusKey("model", "public-0"): wire.ConsumerStatus{Incarnation: "one", State: wire.StateFlowing, Connections: 3},
		wire.MirrorStatusKey("young", wire.MirrorRunContinuous): wire.MirrorStatus{Run: wire.MirrorRunContinuous, Trigger: wire.MirrorContinuously, StartedAt: received, Result: wire.MirrorRunning,
			Progress: wire.MirrorProgress{Objects: 4, TotalObjects: 9, BytesPerSecond: 100}, Owed: &wire.MirrorOwed{Objects: 5, Bytes: 50}},
		wire.ConsumerStatusKey("mirror", "public-0"): wire.ConsumerStatus{Incarnation: "one", State: wire.StateFlowing, Connections: 2},
	} {
		data, err := wire.Encode(report)
		if err == nil {
			_, err = kv.Put(t.Context(), key, data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	look(1, "commands") // its Secret cannot be read
	cluster.Create(t, secret("commands", map[string]string{"account.seed": server.CommandsSeed, "account.id": server.CommandsID}))
	r := look(7, "")
	if last := r.Instruments[0].LastReceivedTime; last == nil || time.Since(last.Time) > time.Hour {
		t.Errorf("last received %v", last)
	}
	if s := r.FeedServers[0]; s.Connections == nil || *s.Connections != 5 || *s.Consumers != 2 {
		t.Errorf("%+v", s)
	}
	if m := r.Mirrors[0]; m.Progress == nil || m.Progress.ObjectCount != 4 || m.Owed == nil || m.Owed.ObjectCount != 5 {
		t.Errorf("%+v", m)
	}
	s.Status.Conditions[2].Status = metav1.ConditionFalse
	if s.Status.Conditions[2].Type != v1alpha1.ConditionJetStreamReachable {
		t.Fatal("the condition is at another place")
	}
	if err := cluster.Status().Update(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	look(1, "JetStreamReachable") // which is not waited for
}

func secret(name string, data map[string]string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: object(name), StringData: data}
}

func natsTLS(t *testing.T, ca *testenv.CA) map[string]string {
	t.Helper()
	dir, data := ca.Dir(t, "client"), map[string]string{}
	for _, file := range []string{"ca.crt", "tls.crt", "tls.key"} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		data[file] = string(text)
	}
	return data
}
