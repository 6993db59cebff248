// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/workload"
)

// outageVariable has the API server be away for longer than a test needs, 5m say.
const outageVariable = "SUBSTORM_TEST_OUTAGE"

// TestAPIServerAway: an operator that does not reach the API server changes nothing of what gateways
// go by, and once it does it brings each change that was made meanwhile, once. (That its audits
// then find nothing otherwise the end of each test looks after.)
func TestAPIServerAway(t *testing.T) {
	w := newWorld(t)
	a := w.awayFromAPI()
	w.start()
	a.declare()
	for _, way := range []struct {
		is     string
		breaks func(*testenv.Relay)
	}{{"hangs", (*testenv.Relay).Hang}, {"is cut off", (*testenv.Relay).Cut}} {
		t.Logf("the way to the API server %s", way.is)
		a.remember()
		way.breaks(w.toAPI)
		a.change()
		a.sleepUntil(time.Now().Add(a.outage))
		a.stands()
		w.toAPI.Mend()
		a.follows()
		a.declare() // for the next time
	}
}

// TestAPIServerAwayAndLeaseLost: an operator that leads ends when it cannot renew its lease, since another may lead. Each operator that is
// started while the API server is away ends too, as the kubelet restarts it again and again. The first that is started when the API server
// is back continues.
func TestAPIServerAwayAndLeaseLost(t *testing.T) {
	program := testenv.Program(t, "operator")
	w := newWorld(t)
	a := w.awayFromAPI()
	first := w.startProgram(program, "first")
	a.declare()
	a.remember()

	w.toAPI.Cut()
	away := time.Now()
	a.change()
	first.ends()
	for n := 0; n < 2 || time.Since(away) < a.outage; n++ {
		w.startProgram(program, fmt.Sprintf("again-%d", n)).ends()
	}
	a.stands()
	w.toAPI.Mend()
	w.startProgram(program, "last")
	a.follows()
}

// ends waits until the operator has ended, with an error.
func (o *operatorProcess) ends() {
	o.t.Helper()
	select {
	case err := <-o.over:
		if err == nil {
			o.t.Errorf("operator %s ended as if all were well", o.name)
		}
	case <-time.After(patience):
		o.t.Fatalf("operator %s runs on without the API server", o.name)
	}
}

// leadThrough has a kubeconfig's user reach the API server over the way that can be cut.
func (w *world) leadThrough(kubeconfig string) {
	w.t.Helper()
	cfg, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, cluster := range cfg.Clusters {
		cluster.Server = "https://" + w.toAPI.Address()
	}
	if err := clientcmd.WriteToFile(*cfg, kubeconfig); err != nil {
		w.t.Fatal(err)
	}
}

// cutOff is a Site with a real gateway, whose operator reaches the API server over a way that the
// test cuts. The test itself has another.
type cutOff struct {
	*world
	outage time.Duration
	// port is where the gateway receives of the camera.
	port    int
	gateway *gateway
	program *testenv.Gateway
	objects int
	// workloads are what the operator had made, with their versions.
	workloads []string
	registry  []string
	writes    *writes
	limit     int
}

func (w *world) awayFromAPI() *cutOff {
	w.t.Helper()
	a := &cutOff{world: w, port: testenv.FreePort(w.t), outage: 5 * time.Second}
	if text := os.Getenv(outageVariable); text != "" {
		var err error
		if a.outage, err = time.ParseDuration(text); err != nil {
			w.t.Fatal(err)
		}
	}
	host := w.api.Config.Host
	if u, err := url.Parse(host); err == nil && u.Host != "" {
		host = u.Host
	}
	w.toAPI = testenv.StartRelay(w.t, host)
	return a
}

// declare applies a Site with a camera, an Instrument with a token and one that will be deleted, and
// waits until the gateway receives.
func (a *cutOff) declare() {
	a.t.Helper()
	first, _, ports := a.ports()
	if a.gateway == nil {
		a.applySite("hub", "hub")
		a.secret("far-tls", map[string]string{"tls.crt": "c", "tls.key": "k"})
		a.applyPool("pool", fmt.Sprintf(", ports: {first: %d, last: %d}, service: {type: ClusterIP}", a.port, a.port))
		a.applyPool("far", ports+", service: {type: ClusterIP}, tls: {certificateSecretRef: {name: far-tls}}")
	}
	a.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "token", Namespace: a.namespace, Labels: map[string]string{accept.LabelTokens: "true"}},
		StringData: map[string]string{"token": tokenOf("web")}})
	a.applyCamera("camera", "127.0.0.0/8")
	a.applyCamera("gone", "192.0.2.1/32")
	a.apply(fmt.Sprintf(`
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: web}
spec:
  siteRef: {name: hub}
  gatewayRef: {name: far}
  type: AllSkyCamera
  listeners: [{name: http, protocol: HTTP, port: %d, tokenSecretKeyRef: {name: token, key: token}, http: {tlsMode: Server}}]
`, first))
	if a.gateway == nil {
		a.gateway = a.world.gateway("pool", "pool-0")
		a.gateway.awaitPort("camera", a.port)
		a.program = testenv.StartGateway(a.t, testenv.GatewayOptions{Site: "hub", NATS: a.nats, MinIO: a.minio, Bucket: a.bucket, Pool: "pool",
			Flags: []string{"--s3-tls-dir", a.minio.CA.Dir(a.t, "gateway")}})
	}
	a.gateway.awaitPort("gone", a.port)
	eventually(a.t, "the registry has the token", func() error {
		if e, err := a.gateway.entry("web"); err != nil || !opens(e, tokenOf("web")) {
			return errors.Join(err, errors.New("it opens nothing"))
		}
		return nil
	})
	a.awaits("Instrument", "camera", "Programmed", "True/Programmed")
	a.send()
}

func (a *cutOff) applyCamera(name, source string) {
	a.t.Helper()
	a.apply(fmt.Sprintf(`
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: %s}
spec:
  siteRef: {name: hub}
  gatewayRef: {name: pool}
  type: AllSkyCamera
  limits: {maxConnections: %d}
  listeners: [{name: tcp, protocol: TCP, port: %d, sources: [%s]}]
`, name, 20+a.limit, a.port, source))
}

// send sends an object to the gateway, which gives a receipt.
func (a *cutOff) send() {
	a.t.Helper()
	a.objects++
	eventually(a.t, "a receipt", func() error { return testenv.SendObject(a.port, fmt.Appendf(nil, "object %d", a.objects)) })
}

// remember notes the current objects and registry, once all are made, and begins to count writes.
func (a *cutOff) remember() {
	a.t.Helper()
	eventually(a.t, "all is made that pools and archivist need", func() error {
		before := a.made()
		for _, last := range []string{"StatefulSet pool ", "StatefulSet far ", "PodDisruptionBudget pool ", "PodDisruptionBudget far ", "Deployment hub-archivist "} {
			if !slices.ContainsFunc(before, func(is string) bool { return strings.Contains(is, last) }) {
				return fmt.Errorf("there is no %s", last)
			}
		}
		time.Sleep(2 * time.Second) // nothing shows that no more is made; objects in the making appear within this time
		if after := a.made(); !slices.Equal(before, after) {
			return fmt.Errorf("it is being made: %v", after)
		}
		return nil
	})
	a.registry, a.workloads, a.writes = a.gateway.registry(), a.made(), a.gateway.count()
}

// change makes, changes and deletes over the way that is not cut.
func (a *cutOff) change() {
	a.t.Helper()
	a.limit++
	a.applyCamera("camera", "127.0.0.0/8")
	a.applyCamera("late", fmt.Sprintf("192.0.2.%d/32", 10+a.limit))
	a.remove(&v1alpha1.Instrument{ObjectMeta: metav1.ObjectMeta{Name: "gone", Namespace: a.namespace}})
	a.remove(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "token", Namespace: a.namespace}})
}

// sleepUntil sends while the API server is away.
func (a *cutOff) sleepUntil(end time.Time) {
	a.t.Helper()
	for time.Now().Before(end) {
		a.send()
		time.Sleep(200 * time.Millisecond)
	}
}

// stands checks that the operator has changed nothing, and has so been cut off, and that data flows.
func (a *cutOff) stands() {
	a.t.Helper()
	if now := a.gateway.registry(); !slices.Equal(now, a.registry) {
		a.t.Fatalf("the registry was\n%s\nand is, with the API server away,\n%s", strings.Join(a.registry, "\n"), strings.Join(now, "\n"))
	}
	if now := a.made(); !slices.Equal(now, a.workloads) {
		a.t.Fatalf("what the operator had made was\n%s\nand is, with the API server away,\n%s", strings.Join(a.workloads, "\n"), strings.Join(now, "\n"))
	}
	a.send()
}

// follows waits until all that was changed is in the registry, and checks that nothing was written
// twice, and nothing else at all.
func (a *cutOff) follows() {
	a.t.Helper()
	eventually(a.t, "what was changed meanwhile", func() error {
		camera, err := a.gateway.entry("camera")
		late, missing := a.gateway.entry("late")
		web, none := a.gateway.entry("web")
		_, stays := a.gateway.entry("gone")
		switch {
		case err != nil || missing != nil || none != nil:
			return errors.Join(err, missing, none)
		case camera.MaxConnections != 20+a.limit || late.MaxConnections != 20+a.limit:
			return fmt.Errorf("connections %d and %d", camera.MaxConnections, late.MaxConnections)
		case !errors.Is(stays, jetstream.ErrKeyNotFound):
			return fmt.Errorf("what was deleted stays: %v", stays)
		case opens(web, tokenOf("web")):
			return errors.New("the token of a Secret that was deleted opens")
		}
		return nil
	})
	for _, name := range []string{"camera", "late"} {
		a.awaits("Instrument", name, "Programmed", "True/Programmed")
	}
	a.awaits("Instrument", "web", "Accepted", "False/SecretNotFound")
	a.send()
	eventually(a.t, "each change is seen", func() error {
		for key := range changedWhileAway {
			if a.writes.all()[key] == 0 {
				return fmt.Errorf("%s was not written", key)
			}
		}
		return nil
	})
	for key, n := range a.writes.all() {
		if want := changedWhileAway[key]; want != n && key != wire.RegistryCompleteKey {
			a.t.Errorf("%s was written %d times, and should be %d times", key, n, want)
		}
	}
	if now := a.made(); !slices.Equal(now, a.workloads) {
		a.t.Errorf("what the operator had made was\n%s\nand is\n%s", strings.Join(a.workloads, "\n"), strings.Join(now, "\n"))
	}
}

var changedWhileAway = map[string]int{wire.RegistryInstrumentKey("camera"): 1, wire.RegistryInstrumentKey("late"): 1,
	wire.RegistryInstrumentKey("gone"): 1, wire.RegistryInstrumentKey("web"): 1}

// made is all that the operator has made in the namespace, with the versions.
func (w *world) made() (all []string) {
	w.t.Helper()
	for _, list := range []client.ObjectList{&appsv1.StatefulSetList{}, &appsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.ServiceAccountList{},
		&corev1.SecretList{}, &policyv1.PodDisruptionBudgetList{}} {
		if err := w.List(w.t.Context(), list, client.InNamespace(w.namespace), client.MatchingLabels{workload.LabelManagedBy: workload.FieldOwner}); err != nil {
			w.t.Fatal(err)
		}
		_ = meta.EachListItem(list, func(o runtime.Object) error {
			is := o.(client.Object)
			all = append(all, fmt.Sprintf("%T %s %s", o, is.GetName(), is.GetResourceVersion()))
			return nil
		})
	}
	return all
}

// writes counts, by key, how often the registry is written.
type writes struct {
	mu  sync.Mutex
	one map[string]int
}

func (g *gateway) count() *writes {
	g.t.Helper()
	kv, err := g.js.KeyValue(g.t.Context(), wire.RegistryBucket(g.code))
	if err != nil {
		g.t.Fatal(err)
	}
	changes, err := kv.WatchAll(g.t.Context(), jetstream.UpdatesOnly())
	if err != nil {
		g.t.Fatal(err)
	}
	w := &writes{one: map[string]int{}}
	go func() {
		for change := range changes.Updates() {
			if change != nil {
				w.mu.Lock()
				w.one[change.Key()]++
				w.mu.Unlock()
			}
		}
	}()
	return w
}

func (w *writes) all() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.one)
}
