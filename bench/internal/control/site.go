// SPDX-License-Identifier: Apache-2.0

// Package control has a Site whose control plane is measured: the operator in a process of its
// own beside real servers, and pods that only report.
package control

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/operator"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/workload"
)

// Backends are real servers that Sites use.
type Backends struct {
	API   *testenv.KubernetesAPI
	NATS  *testenv.NATSServer
	MinIO *testenv.MinIOServer
	// ToStore and ToNATS, where set, are a Site's ways to them.
	ToStore, ToNATS *testenv.Relay
}

// urls are where a Site's operator finds the object store and NATS.
func (b Backends) urls() (store, nats string) {
	store, nats = b.MinIO.URL(), b.NATS.URL()
	if b.ToStore != nil {
		store = "https://" + b.ToStore.Address()
	}
	if b.ToNATS != nil {
		nats = "tls://" + b.ToNATS.Address()
	}
	return store, nats
}

// Start starts the backends.
func Start(l *lab.Lab) Backends {
	ctrl.SetLogger(logr.Discard())
	return Backends{
		API:   testenv.Kubernetes(l),
		NATS:  testenv.NATS(l, testenv.NATSOptions{Operator: true, TLS: true, AnyClient: true, Unsynced: true}),
		MinIO: testenv.MinIO(l, testenv.MinIOOptions{TLS: true}),
	}
}

// Size is how large a Site is.
type Size struct {
	Instruments, Gateways, Feeds, Consumers int
}

// Site is a namespace with a Site; its code is the namespace's name.
type Site struct {
	client.Client
	Name string
	Size Size
	Seen *Seen
	pods *pods
	api  *rest.Config
}

const (
	// atOnce is how many requests the benchmark has under way.
	atOnce = 16
	// groups of Instruments, by which Feeds select.
	groups = 50
	// ownPorts of a pool's Instruments receive over TCP, each on a port of its own; the
	// others share one for HTTP.
	ownPorts  = 200
	firstPort = 20000
)

// NewSite makes the namespace, what a Site names, and the Site.
func NewSite(ctx context.Context, l *lab.Lab, b Backends, name string, s Size) (*Site, error) {
	scheme, err := operator.NewScheme()
	if err != nil {
		return nil, err
	}
	c, err := client.New(b.API.Config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	is := &Site{Client: client.NewNamespacedClient(c, name), Name: name, Size: s, api: b.API.Config}
	if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return nil, err
	}
	js := b.NATS.JetStream(l)
	is.Seen = newSeen()
	if err := is.Seen.watchInstruments(ctx, b.API.Config, scheme, name); err != nil {
		return nil, err
	}
	is.pods = &pods{js: js, site: name, size: s, client: is.Client}
	is.Seen.registry = js
	return is, is.secretsAndSite(ctx, l, b)
}

// secretsAndSite makes the Secrets that a Site names, and the Site.
func (s *Site) secretsAndSite(ctx context.Context, l *lab.Lab, b Backends) error {
	certificate, key := b.NATS.CA.Issue(l, "operator-"+s.Name)
	for name, data := range map[string]map[string]string{
		"s3":        {"accessKeyID": b.MinIO.AccessKeyID, "secretAccessKey": b.MinIO.SecretAccessKey},
		"account":   {"account.seed": b.NATS.AccountSeed, "account.id": b.NATS.AccountID},
		"consumers": {"account.seed": b.NATS.ConsumersSeed, "account.id": b.NATS.ConsumersID},
		"s3-tls":    {"ca.crt": string(b.MinIO.CA.PEM)},
		"nats-tls":  {"ca.crt": string(b.NATS.CA.PEM), "tls.crt": string(certificate), "tls.key": string(key)},
	} {
		if err := s.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}); err != nil {
			return err
		}
	}
	store, nats := b.urls()
	err := s.apply(ctx, fmt.Sprintf(`
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
    tls: {certificateSecretRef: {name: nats-tls}, caSecretRef: {name: nats-tls}}
    durability: Synced
    observations: {maxSize: 64Mi}
    notices: {maxSize: 64Mi}
`, s.Name, s.Name, store, testenv.BucketName(), nats))
	if err != nil {
		return err
	}
	return s.apply(ctx, fmt.Sprintf(`
apiVersion: substorm.dev/v1alpha1
kind: FeedServer
metadata: {name: %s}
spec: {siteRef: {name: %s}, replicas: %d}
`, s.Name, s.Name, feedServers))
}

func (s *Site) apply(ctx context.Context, manifest string) error {
	u := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(manifest), &u.Object); err != nil {
		return err
	}
	return s.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("kubectl"))
}

// Pools creates the pools, and lets pods of theirs report.
func (s *Site) Pools(ctx context.Context) error {
	if err := s.pods.start(ctx, s.Seen); err != nil {
		return err
	}
	return Many(s.Size.Gateways, func(i int) error { return s.Create(ctx, s.gateway(i)) })
}

// Install creates pools, Instruments, Feeds and FeedConsumers, and waits until every
// Instrument is Programmed.
func (s *Site) Install(ctx context.Context, limit time.Duration) (time.Duration, error) {
	begin := time.Now()
	if err := s.Pools(ctx); err != nil {
		return 0, err
	}
	for _, kind := range []struct {
		count int
		make  func(int) client.Object
	}{
		{s.Size.Feeds, func(i int) client.Object { return s.feed(i) }},
		{s.Size.Instruments, func(i int) client.Object { return s.Instrument(i) }},
		{s.Size.Consumers, func(i int) client.Object { return s.consumer(i) }},
	} {
		if err := Many(kind.count, func(i int) error { return s.Create(ctx, kind.make(i)) }); err != nil {
			return 0, err
		}
	}
	Said("created after %v", time.Since(begin))
	Within(ctx, limit-time.Since(begin), func() bool { return s.Seen.Programmed() == s.Size.Instruments })
	return time.Since(begin), nil
}

// Many does something for each number, some of them at once.
func Many(count int, do func(int) error) error {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range count {
		group.Go(func() error { return do(i) })
	}
	return group.Wait()
}

func gatewayName(i int) string { return fmt.Sprintf("pool-%d", i) }

func instrumentName(i int) string { return fmt.Sprintf("instrument-%05d", i) }

func feedName(i int) string { return fmt.Sprintf("feed-%d", i) }

func (s *Site) ref() v1alpha1.LocalReference { return v1alpha1.LocalReference{Name: s.Name} }

func (s *Site) gateway(i int) *v1alpha1.IngestGateway {
	return &v1alpha1.IngestGateway{ObjectMeta: metav1.ObjectMeta{Name: gatewayName(i)}, Spec: v1alpha1.IngestGatewaySpec{
		SiteRef: s.ref(), Replicas: new(int32(1)), Ports: v1alpha1.PortRange{First: firstPort, Last: firstPort + ownPorts},
		Service: v1alpha1.GatewayService{Type: "ClusterIP"},
	}}
}

// Instrument number i is received by pool i modulo pools.
func (s *Site) Instrument(i int) *v1alpha1.Instrument {
	inst := &v1alpha1.Instrument{
		ObjectMeta: metav1.ObjectMeta{Name: instrumentName(i), Labels: map[string]string{"group": fmt.Sprintf("g%d", i%groups)}},
		Spec: v1alpha1.InstrumentSpec{
			SiteRef: s.ref(), GatewayRef: &v1alpha1.LocalReference{Name: gatewayName(i % s.Size.Gateways)}, Type: "Magnetometer",
			Cadence: v1alpha1.Cadence{Interval: metav1.Duration{Duration: time.Minute}},
		},
	}
	if place := i / s.Size.Gateways; place < ownPorts {
		inst.Spec.Listeners = []v1alpha1.Listener{{Name: "frames", Protocol: v1alpha1.ListenerTCP, Port: int32(firstPort + place)}}
	} else {
		inst.Spec.Listeners = []v1alpha1.Listener{{Name: "frames", Protocol: v1alpha1.ListenerHTTP, Port: firstPort + ownPorts}}
	}
	return inst
}

// feed selects a group of Instruments, or, each fifth, all of them.
func (s *Site) feed(i int) *v1alpha1.Feed {
	f := &v1alpha1.Feed{ObjectMeta: metav1.ObjectMeta{Name: feedName(i)}, Spec: v1alpha1.FeedSpec{SiteRef: s.ref()}}
	if i%5 > 0 {
		f.Spec.Selector.MatchLabels = map[string]string{"group": fmt.Sprintf("g%d", i%groups)}
	}
	return f
}

// consumer reads over WebSocket, or, each seventh, from NATS.
func (s *Site) consumer(i int) *v1alpha1.FeedConsumer {
	c := &v1alpha1.FeedConsumer{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("consumer-%d", i)},
		Spec: v1alpha1.FeedConsumerSpec{FeedRef: v1alpha1.LocalReference{Name: feedName(i % s.Size.Feeds)}}}
	c.Spec.Delivery.Type = v1alpha1.DeliveryWebSocket
	if i%7 == 0 {
		c.Spec.Delivery.Type = v1alpha1.DeliveryNATS
	}
	return c
}

// ChangeOne gives an Instrument another spec, and remembers when.
func (s *Site) ChangeOne(ctx context.Context, i, number int) error {
	inst := &v1alpha1.Instrument{ObjectMeta: metav1.ObjectMeta{Name: instrumentName(i)}}
	patch := fmt.Sprintf(`{"spec":{"limits":{"maxConnections":%d}}}`, 2+number%900)
	if err := s.Patch(ctx, inst, client.RawPatch("application/merge-patch+json", []byte(patch)), client.FieldOwner("kubectl")); err != nil {
		return err
	}
	s.Seen.declared(inst.Name, inst.Generation, time.Now())
	return nil
}

// PatchSite changes the Site.
func (s *Site) PatchSite(ctx context.Context, patch string) error {
	is := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	return s.Patch(ctx, is, client.RawPatch("application/merge-patch+json", []byte(patch)), client.FieldOwner("kubectl"))
}

// series of what the API server was asked to do, by all who ask.
var series = regexp.MustCompile(`^apiserver_request_total\{.*resource="([^"]*)".*subresource="([^"]*)".*verb="(APPLY|DELETE|PATCH|POST|PUT)".*\} (\S+)$`)

// Writes are those of all who ask the API server, by what they are about.
func (s *Site) Writes(ctx context.Context) (map[string]float64, error) {
	c, err := kubernetes.NewForConfig(s.api)
	if err != nil {
		return nil, err
	}
	text, err := c.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	all := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if m := series.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			n, _ := strconv.ParseFloat(m[4], 64)
			all[m[3]+" "+m[1]+"/"+m[2]] += n
		}
	}
	return all, err
}

// readyPod is a pod of a pool that is ready, as a node would say.
func readyPod(pool string) *corev1.Pod {
	labels := workload.PodLabels(pool)
	labels[workload.LabelManagedBy] = workload.FieldOwner
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: pool + "-0", Labels: labels},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "gateway", Image: "substorm/ingest-gateway:dev"}}},
	}
}

// Within waits until something is so, for at most so long, and returns for how long it waited.
func Within(ctx context.Context, limit time.Duration, is func() bool) time.Duration {
	begin := time.Now()
	for time.Since(begin) < limit && ctx.Err() == nil && !is() {
		time.Sleep(50 * time.Millisecond)
	}
	return time.Since(begin)
}

// Said tells on standard error how far a benchmark is.
func Said(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
