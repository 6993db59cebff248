// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/operator"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
)

// backends are real servers that both Sites use.
type backends struct {
	api   *testenv.KubernetesAPI
	nats  *testenv.NATSServer
	minio *testenv.MinIOServer
}

// site is a namespace with a Site; its code is the namespace's name.
type site struct {
	client.Client
	name string
	size size
	seen *seen
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

func newSite(ctx context.Context, l *lab.Lab, b backends, name string, s size) (*site, error) {
	scheme, err := operator.NewScheme()
	if err != nil {
		return nil, err
	}
	c, err := client.New(b.api.Config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	is := &site{Client: client.NewNamespacedClient(c, name), name: name, size: s, api: b.api.Config}
	if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return nil, err
	}
	js := b.nats.JetStream(l)
	is.seen = newSeen()
	if err := is.seen.watchInstruments(ctx, b.api.Config, scheme, name); err != nil {
		return nil, err
	}
	is.pods = &pods{js: js, site: name, size: s, client: is.Client}
	is.seen.registry = js
	return is, is.secretsAndSite(ctx, l, b)
}

// secretsAndSite makes the Secrets that a Site names, and the Site.
func (s *site) secretsAndSite(ctx context.Context, l *lab.Lab, b backends) error {
	certificate, key := b.nats.CA.Issue(l, "operator-"+s.name)
	for name, data := range map[string]map[string]string{
		"s3":        {"accessKeyID": b.minio.AccessKeyID, "secretAccessKey": b.minio.SecretAccessKey},
		"account":   {"account.seed": b.nats.AccountSeed, "account.id": b.nats.AccountID},
		"consumers": {"account.seed": b.nats.ConsumersSeed, "account.id": b.nats.ConsumersID},
		"s3-tls":    {"ca.crt": string(b.minio.CA.PEM)},
		"nats-tls":  {"ca.crt": string(b.nats.CA.PEM), "tls.crt": string(certificate), "tls.key": string(key)},
	} {
		if err := s.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}); err != nil {
			return err
		}
	}
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
`, s.name, s.name, b.minio.URL(), testenv.BucketName(), b.nats.URL()))
	if err != nil {
		return err
	}
	return s.apply(ctx, fmt.Sprintf(`
apiVersion: substorm.dev/v1alpha1
kind: FeedServer
metadata: {name: %s}
spec: {siteRef: {name: %s}, replicas: %d}
`, s.name, s.name, feedServers))
}

func (s *site) apply(ctx context.Context, manifest string) error {
	u := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(manifest), &u.Object); err != nil {
		return err
	}
	return s.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("kubectl"))
}

// install creates pools, Instruments, Feeds and FeedConsumers, and waits until every
// Instrument is Programmed.
func (s *site) install(ctx context.Context, limit time.Duration) (time.Duration, error) {
	begin := time.Now()
	if err := s.pods.start(ctx, s.seen); err != nil {
		return 0, err
	}
	for _, kind := range []struct {
		count int
		make  func(int) client.Object
	}{
		{s.size.gateways, func(i int) client.Object { return s.gateway(i) }},
		{s.size.feeds, func(i int) client.Object { return s.feed(i) }},
		{s.size.instruments, func(i int) client.Object { return s.instrument(i) }},
		{s.size.consumers, func(i int) client.Object { return s.consumer(i) }},
	} {
		if err := many(kind.count, func(i int) error { return s.Create(ctx, kind.make(i)) }); err != nil {
			return 0, err
		}
	}
	said("created after %v", time.Since(begin))
	within(ctx, limit-time.Since(begin), func() bool { return s.seen.programmed() == s.size.instruments })
	return time.Since(begin), nil
}

// many does something for each number, some of them at once.
func many(count int, do func(int) error) error {
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

func (s *site) ref() v1alpha1.LocalReference { return v1alpha1.LocalReference{Name: s.name} }

func (s *site) gateway(i int) *v1alpha1.IngestGateway {
	return &v1alpha1.IngestGateway{ObjectMeta: metav1.ObjectMeta{Name: gatewayName(i)}, Spec: v1alpha1.IngestGatewaySpec{
		SiteRef: s.ref(), Replicas: new(int32(1)), Ports: v1alpha1.PortRange{First: firstPort, Last: firstPort + ownPorts},
		Service: v1alpha1.GatewayService{Type: "ClusterIP"},
	}}
}

// instrument number i is received by pool i modulo pools.
func (s *site) instrument(i int) *v1alpha1.Instrument {
	inst := &v1alpha1.Instrument{
		ObjectMeta: metav1.ObjectMeta{Name: instrumentName(i), Labels: map[string]string{"group": fmt.Sprintf("g%d", i%groups)}},
		Spec: v1alpha1.InstrumentSpec{
			SiteRef: s.ref(), GatewayRef: &v1alpha1.LocalReference{Name: gatewayName(i % s.size.gateways)}, Type: "Magnetometer",
			Cadence: v1alpha1.Cadence{Interval: metav1.Duration{Duration: time.Minute}},
		},
	}
	if place := i / s.size.gateways; place < ownPorts {
		inst.Spec.Listeners = []v1alpha1.Listener{{Name: "frames", Protocol: v1alpha1.ListenerTCP, Port: int32(firstPort + place)}}
	} else {
		inst.Spec.Listeners = []v1alpha1.Listener{{Name: "frames", Protocol: v1alpha1.ListenerHTTP, Port: firstPort + ownPorts}}
	}
	return inst
}

// feed selects a group of Instruments, or, each fifth, all of them.
func (s *site) feed(i int) *v1alpha1.Feed {
	f := &v1alpha1.Feed{ObjectMeta: metav1.ObjectMeta{Name: feedName(i)}, Spec: v1alpha1.FeedSpec{SiteRef: s.ref()}}
	if i%5 > 0 {
		f.Spec.Instruments.MatchLabels = map[string]string{"group": fmt.Sprintf("g%d", i%groups)}
	}
	return f
}

// consumer reads over WebSocket, or, each seventh, from NATS.
func (s *site) consumer(i int) *v1alpha1.FeedConsumer {
	c := &v1alpha1.FeedConsumer{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("consumer-%d", i)},
		Spec: v1alpha1.FeedConsumerSpec{FeedRef: v1alpha1.LocalReference{Name: feedName(i % s.size.feeds)}}}
	c.Spec.Delivery.Type = v1alpha1.DeliveryWebSocket
	if i%7 == 0 {
		c.Spec.Delivery.Type = v1alpha1.DeliveryNATS
	}
	return c
}

// changeOne gives an Instrument another spec, and remembers when.
func (s *site) changeOne(ctx context.Context, i, number int) error {
	inst := &v1alpha1.Instrument{ObjectMeta: metav1.ObjectMeta{Name: instrumentName(i)}}
	patch := fmt.Sprintf(`{"spec":{"limits":{"maxConnections":%d}}}`, 2+number%900)
	if err := s.Patch(ctx, inst, client.RawPatch("application/merge-patch+json", []byte(patch)), client.FieldOwner("kubectl")); err != nil {
		return err
	}
	s.seen.declared(inst.Name, inst.Generation, time.Now())
	return nil
}

func (s *site) patchSite(ctx context.Context, patch string) error {
	is := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	return s.Patch(ctx, is, client.RawPatch("application/merge-patch+json", []byte(patch)), client.FieldOwner("kubectl"))
}

// series of what the API server was asked to do, by all who ask.
var series = regexp.MustCompile(`^apiserver_request_total\{.*resource="([^"]*)".*subresource="([^"]*)".*verb="(APPLY|DELETE|PATCH|POST|PUT)".*\} (\S+)$`)

// writes are those of all who ask the API server, by what they are about.
func (s *site) writes(ctx context.Context) (map[string]float64, error) {
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
	labels := plan.PodLabels(pool)
	labels[plan.LabelManagedBy] = plan.FieldOwner
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: pool + "-0", Labels: labels},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "gateway", Image: "substorm/ingest-gateway:dev"}}},
	}
}
