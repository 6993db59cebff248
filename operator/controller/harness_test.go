// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/operator"
	"github.com/substorm/substorm/operator/api/readable"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/controller"
	"github.com/substorm/substorm/operator/plan/workload"
	"github.com/substorm/substorm/operator/surge/autoscale"
)

var (
	api    *testenv.KubernetesAPI
	scheme *runtime.Scheme
)

func TestMain(m *testing.M) {
	// The tests wait for most of their time.
	if err := flag.Set("test.parallel", "24"); err != nil {
		panic(err)
	}
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctrl.SetLogger(logr.Discard())
	var err error
	if api, err = testenv.StartKubernetes(); err == nil {
		defer func() { _ = api.Stop() }()
		scheme, err = operator.NewScheme()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// patience is how long a test waits for an expected state. It does not measure how long that takes.
const patience = testenv.Patience

// world is a namespace with an operator of its own, a NATS server in operator
// mode and a bucket of an S3 server, both with TLS.
type world struct {
	client.Client
	t *testing.T
	// api is the API server, which worlds share, except those that change its CRDs.
	api       *testenv.KubernetesAPI
	namespace string
	nats      *testenv.NATSServer
	minio     *testenv.MinIOServer
	bucket    string
	// code of the Site whose registry gateways read.
	code    string
	metrics *prometheus.Registry
	// between, if set, is the transport between the operator and the API server.
	between func(http.RoundTripper) http.RoundTripper
	// watchSecrets has the operator watch Secrets, where it may.
	watchSecrets bool
	// readNodes has the operator read nodes, which it then may.
	readNodes bool
	// deletionLimit, where set, is how long deletions wait.
	deletionLimit time.Duration
	// toStore and toNATS, where set, are the Site's ways to its backends.
	toStore, toNATS *testenv.Relay
	// toAPI, where set, is the operator's way to the API server.
	toAPI *testenv.Relay
	// autoscale, where set, is how the operator's own loop behaves.
	autoscale autoscale.Config
	// build is the tag of the images that the operator has pods run.
	build string
	// neighbours are worlds that the same operator manages.
	neighbours []*world
	stop       func()
}

var worlds atomic.Int32

// newWorld starts a NATS server and makes the Secrets s3, account and tls; the
// operator is not started yet. Worlds share an S3 server.
func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return newWorldOn(t, testenv.SharedMinIO(t, testenv.MinIOOptions{TLS: true}))
}

func newWorldOn(t *testing.T, minio *testenv.MinIOServer) *world {
	t.Helper()
	return newWorldAt(t, api, minio)
}

func newWorldAt(t *testing.T, api *testenv.KubernetesAPI, minio *testenv.MinIOServer) *world {
	t.Helper()
	w := &world{t: t, api: api, namespace: fmt.Sprintf("world-%d", worlds.Add(1)), minio: minio, bucket: testenv.BucketName(), code: "hub", build: "dev"}
	var err error
	if w.Client, err = client.New(api.Config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace,
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}})
	w.nats = testenv.NATS(t, testenv.NATSOptions{Operator: true, TLS: true, AnyClient: true, Domain: "hub", TakesLeaves: true})
	w.secret("s3", map[string]string{"accessKeyID": w.minio.AccessKeyID, "secretAccessKey": w.minio.SecretAccessKey})
	w.secret("account", map[string]string{"account.seed": w.nats.AccountSeed, "account.id": w.nats.AccountID})
	w.secret("consumers", map[string]string{"account.seed": w.nats.ConsumersSeed, "account.id": w.nats.ConsumersID})
	w.secret("leaves", map[string]string{"account.seed": w.nats.LeavesSeed, "account.id": w.nats.LeavesID})
	w.secret("s3-tls", map[string]string{"ca.crt": string(w.minio.CA.PEM)})
	certificate, key := w.nats.CA.Issue(t, "operator")
	w.secret("nats-tls", map[string]string{"ca.crt": string(w.nats.CA.PEM), "tls.crt": string(certificate), "tls.key": string(key)})
	t.Cleanup(func() {
		if t.Failed() {
			w.dump()
		}
	})
	return w
}

// start starts an operator that may do what its README says and no more.
func (w *world) start() {
	w.t.Helper()
	user, err := w.api.User("operator-" + w.namespace)
	if err != nil {
		w.t.Fatal(err)
	}
	namespaces := []string{w.namespace}
	for _, n := range w.neighbours {
		n.grant("operator-" + w.namespace)
		namespaces = append(namespaces, n.namespace)
	}
	w.grant("operator-" + w.namespace)
	user.QPS, user.Burst = -1, 0
	w.awaitRights(user)
	if w.toAPI != nil {
		user.Host = "https://" + w.toAPI.Address()
	}
	if w.between != nil {
		user.Wrap(w.between)
	}
	log := slog.New(slog.NewTextHandler(newTestLog(w.t), &slog.HandlerOptions{Level: slog.LevelInfo}))
	mgr := w.manager(user, namespaces, log)
	ctx, cancel := context.WithCancel(context.Background())
	w.metrics = prometheus.NewRegistry()
	err = controller.Setup(ctx, mgr, controller.Config{Images: controller.Images{Gateway: "substorm/ingest-gateway:" + w.build, FeedServer: "substorm/feed-server:dev", Archivist: "substorm/archivist:dev", Mirror: "substorm/mirror-jobs:dev"}, Log: log, Metrics: w.metrics, Unchecked: true, AuditEvery: 2 * time.Second,
		WatchSecrets: w.watchSecrets, ReadNodes: w.readNodes, DeletionLimit: w.deletionLimit, Namespaces: namespaces, Autoscale: w.autoscale})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, n := range append(w.neighbours, w) {
		go n.rollOutArchivists(ctx)
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("operator: %v", err)
		}
		if n := w.counted("substorm_registry_audit_differences_total"); n > 0 {
			w.t.Errorf("%v times the registry was not as it should be: see the log", n)
		}
		w.stop = func() {}
	}
	w.t.Cleanup(func() { w.stop() })
}

func (w *world) manager(cfg *rest.Config, namespaces []string, log *slog.Logger) ctrl.Manager {
	w.t.Helper()
	watched := map[string]cache.Config{}
	for _, name := range namespaces {
		watched[name] = cache.Config{}
	}
	mgr, err := ctrl.NewManager(readable.Config(cfg, scheme, log), ctrl.Options{
		Scheme: scheme, Logger: logr.FromSlogHandler(log.Handler()),
		Cache:   cache.Options{DefaultNamespaces: watched, ByObject: controller.CacheObjects(nil)},
		Metrics: server.Options{BindAddress: "0"},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return mgr
}

// counted is a counter of the operator's.
func (w *world) counted(name string) float64 {
	w.t.Helper()
	families, err := w.metrics.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	w.t.Fatalf("the operator has no metric %s", name)
	return 0
}

func (w *world) ensure(o client.Object) {
	w.t.Helper()
	if err := w.Create(w.t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
		w.t.Fatal(err)
	}
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	if err := w.Create(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(o client.Object) {
	w.t.Helper()
	if err := w.Delete(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

// removeSite deletes a Site, and those of its dependents that the next Site of its code must recreate: there is no garbage collector.
func (w *world) removeSite(name string) {
	w.t.Helper()
	site := w.object("Site", name)
	if err := w.Get(w.t.Context(), client.ObjectKeyFromObject(site), site); err != nil {
		w.t.Fatal(err)
	}
	w.remove(site)
	for _, list := range []client.ObjectList{&corev1.SecretList{}, &corev1.ServiceAccountList{}, &policyv1.PodDisruptionBudgetList{}, &appsv1.DeploymentList{}} {
		if err := w.List(w.t.Context(), list, client.InNamespace(w.namespace)); err != nil {
			w.t.Fatal(err)
		}
		_ = meta.EachListItem(list, func(o runtime.Object) error {
			if o := o.(client.Object); metav1.IsControlledBy(o, site) {
				w.remove(o)
			}
			return nil
		})
	}
}

func (w *world) secret(name string, data map[string]string) *corev1.Secret {
	w.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}, StringData: data}
	w.create(s)
	return s
}

// apply applies a manifest as kubectl does.
func (w *world) apply(manifest string) {
	w.t.Helper()
	if err := w.tryApply(manifest); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) tryApply(manifest string) error {
	w.t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(manifest), &u.Object); err != nil {
		w.t.Fatalf("%v in\n%s", err, manifest)
	}
	u.SetNamespace(w.namespace)
	return w.Client.Apply(w.t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("kubectl"))
}

func (w *world) applySite(name, code string) {
	w.t.Helper()
	store, servers := w.minio.URL(), w.nats.URL()
	if w.toStore != nil {
		store, servers = "https://"+w.toStore.Address(), "tls://"+w.toNATS.Address()
	}
	w.apply(fmt.Sprintf(`
apiVersion: substorm.dev/v1alpha1
kind: Site
metadata: {name: %s}
spec:
  code: %s
  objectStore: {endpoint: %q, bucket: %s, credentialsSecretRef: {name: s3}, tls: {caSecretRef: {name: s3-tls}}}
  jetStream:
    servers: [%q]
    accountKeySecretRef: {name: account}
    consumerAccountKeySecretRef: {name: consumers}
    leafAccountKeySecretRef: {name: leaves}
    tls: {certificateSecretRef: {name: nats-tls}, caSecretRef: {name: nats-tls}}
    durability: Synced
    observations: {maxSize: 64Mi}
    notices: {maxSize: 64Mi}
`, name, code, store, w.bucket, servers))
}

func (w *world) applyPool(name, spec string) {
	w.t.Helper()
	w.apply(fmt.Sprintf(`
apiVersion: substorm.dev/v1alpha1
kind: IngestGateway
metadata: {name: %s}
spec: {siteRef: {name: hub}%s}
`, name, spec))
}

func (w *world) applyServer(name, spec string) {
	w.t.Helper()
	w.apply(fmt.Sprintf(`
apiVersion: substorm.dev/v1alpha1
kind: FeedServer
metadata: {name: %s}
spec: {siteRef: {name: hub}%s}
`, name, spec))
}

func (w *world) applyInstrument(name string, port int, spec string) {
	w.t.Helper()
	w.apply(fmt.Sprintf(`
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: %s}
spec: {siteRef: {name: hub}, type: AllSkyCamera, listeners: [{name: tcp, protocol: TCP, port: %d}]%s}
`, name, port, spec))
}

// ports returns a range of node ports that no other world has.
func (w *world) ports() (first, last int, spec string) {
	var n int
	fmt.Sscanf(w.namespace, "world-%d", &n)
	first = 30000 + 10*n
	return first, first + 9, fmt.Sprintf(", ports: {first: %d, last: %d}", first, first+9)
}

// eventually tries until there is no error.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	var err error
	for range testenv.Attempts() {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

// readyPod makes a pod of a pool and says that it is ready, as a node would.
func (w *world) readyPod(pool, name, host string) {
	w.t.Helper()
	w.readyPodOf(workload.PodLabels(pool), name, host)
}

// readyPodOf makes a pod with labels, as readyPod does.
func (w *world) readyPodOf(labels map[string]string, name, host string) {
	w.t.Helper()
	no, yes, user := false, true, int64(65532)
	labels[workload.LabelManagedBy] = workload.FieldOwner
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace, Labels: labels},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: &no,
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &user,
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{Name: "gateway", Image: "substorm/ingest-gateway:dev",
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}},
		},
	}
	w.create(pod)
	pod.Status.HostIP = host
	pod.Status.HostIPs = []corev1.HostIP{{IP: host}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	if err := w.Status().Update(w.t.Context(), pod); err != nil {
		w.t.Fatal(err)
	}
}

// dump logs what a failed test left.
func (w *world) dump() {
	for _, kind := range []string{"SiteList", "IngestGatewayList", "FeedServerList", "InstrumentList", "FeedList", "FeedConsumerList"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
		if err := w.List(context.Background(), list, client.InNamespace(w.namespace)); err != nil {
			w.t.Log(err)
		}
		for i := range list.Items {
			text, _ := yaml.Marshal(list.Items[i].Object["status"])
			w.t.Logf("%s %s generation %d\n%s", list.Items[i].GetKind(), list.Items[i].GetName(), list.Items[i].GetGeneration(), text)
		}
	}
}
