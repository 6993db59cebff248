// SPDX-License-Identifier: Apache-2.0

package metricsbridge_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kyaml "sigs.k8s.io/yaml"

	"github.com/substorm/substorm/internal/testenv"
	metricsbridge "github.com/substorm/substorm/metrics-bridge"
)

const namespace = "substorm"

// lab is a cluster without nodes: a real API server with the controllers of Kubernetes that scaling needs, and a real operator. The test does what
// a node does for feed servers: it runs a real one for each pod, and says that the pod is ready.
type lab struct {
	client.Client
	t        *testing.T
	api      *testenv.KubernetesAPI
	nats     *testenv.NATSServer
	operator string // URL of its metrics
	servers  map[string]*testenv.FeedServer
	bridge   string // address of the bridge
}

// startAPI starts the API server alone.
func startAPI(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, api: testenv.KubernetesAggregating(t), servers: map[string]*testenv.FeedServer{}}
	var err error
	if l.Client, err = client.New(l.api.Config, client.Options{Scheme: scheme.Scheme}); err != nil {
		t.Fatal(err)
	}
	return l
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := startAPI(t)
	l.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}})
	l.declareSite()
	l.api.Controllers(t, "horizontal-pod-autoscaler-controller,deployment-controller,replicaset-controller", "--horizontal-pod-autoscaler-sync-period=1s")
	metrics := fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t))
	l.operator = "http://" + metrics + "/metrics"
	testenv.StartOperator(t, l.api.Kubeconfig(t, "operator", "system:masters"), "--metrics-address="+metrics, "--leader-election=false")
	return l
}

// declareSite declares the Site demo with a FeedServer of one pod, and a Feed with the consumer viewer.
func (l *lab) declareSite() {
	l.t.Helper()
	l.nats = testenv.NATS(l.t, testenv.NATSOptions{Operator: true})
	minio := testenv.SharedMinIO(l.t, testenv.MinIOOptions{})
	for name, data := range map[string]map[string]string{
		"s3":        {"accessKeyID": minio.AccessKeyID, "secretAccessKey": minio.SecretAccessKey},
		"account":   {"account.seed": l.nats.AccountSeed, "account.id": l.nats.AccountID},
		"consumers": {"account.seed": l.nats.ConsumersSeed, "account.id": l.nats.ConsumersID},
	} {
		l.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, StringData: data})
	}
	for _, o := range l.decode(fmt.Sprintf(`
apiVersion: substorm.dev/v1alpha1
kind: Site
metadata: {name: demo}
spec:
  code: demo
  objectStore: {endpoint: %q, bucket: %s, credentialsSecretRef: {name: s3}}
  jetStream:
    servers: [%q]
    accountKeySecretRef: {name: account}
    consumerAccountKeySecretRef: {name: consumers}
    durability: Synced
    observations: {maxSize: 64Mi}
    notices: {maxSize: 64Mi}
---
apiVersion: substorm.dev/v1alpha1
kind: FeedServer
metadata: {name: demo}
spec: {siteRef: {name: demo}, replicas: 1}
---
apiVersion: substorm.dev/v1alpha1
kind: Feed
metadata: {name: all}
spec: {siteRef: {name: demo}}
---
apiVersion: substorm.dev/v1alpha1
kind: FeedConsumer
metadata: {name: viewer}
spec: {feedRef: {name: all}, delivery: {type: ServerSentEvents}, maxConnections: 100}
`, minio.URL(), testenv.BucketName(), l.nats.URL())) {
		l.create(o)
	}
}

// installBridge makes what the chart makes for the bridge, but for the pod, and returns the name of its account. The Service leads to this machine.
func (l *lab) installBridge() (account string) {
	l.t.Helper()
	port := testenv.FreePort(l.t)
	l.bridge = fmt.Sprintf("127.0.0.1:%d", port)
	for _, o := range l.decode(l.render()) {
		switch o.GetKind() {
		case "Deployment":
			continue
		case "Service":
			o.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": "localhost"}
		case "APIService":
			if err := unstructured.SetNestedField(o.Object, int64(port), "spec", "service", "port"); err != nil {
				l.t.Fatal(err)
			}
		case "ServiceAccount":
			account = o.GetName()
		}
		l.create(o)
	}
	return account
}

// render returns the chart's objects for the bridge.
func (l *lab) render() string {
	l.t.Helper()
	folder, err := testenv.Checkout()
	if err != nil {
		l.t.Fatal(err)
	}
	home := l.t.TempDir()
	helm := exec.CommandContext(l.t.Context(), testenv.Path(l.t, "helm"), "template", "test", filepath.Join(folder, "charts", "substorm"),
		"--namespace="+namespace, "--set=metricsBridge.enabled=true", "--show-only=templates/metricsbridge.yaml")
	helm.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "KUBECONFIG="+os.DevNull)
	var errs bytes.Buffer
	helm.Stderr = &errs
	out, err := helm.Output()
	if err != nil {
		l.t.Fatalf("%v\n%s", err, errs.String())
	}
	return string(out)
}

// startBridge runs the bridge with the rights of an account until the returned function is called.
func (l *lab) startBridge(account string) (stop func()) {
	l.t.Helper()
	kubeconfig := l.api.Kubeconfig(l.t, "system:serviceaccount:"+namespace+":"+account, "system:serviceaccounts", "system:serviceaccounts:"+namespace)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- metricsbridge.Run(ctx, metricsbridge.Config{Operators: []string{l.operator}, Kubeconfig: kubeconfig, Listen: l.bridge, ListenHTTP: "127.0.0.1:0",
			ServiceName: account, ServiceNamespace: namespace, Log: testLog(l.t)})
	}()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			l.t.Errorf("the bridge: %v", err)
		}
	}
	l.t.Cleanup(stop)
	return stop
}

// nodes does what nodes would: each pod of the FeedServer has a process, and is ready. It returns how many there are.
func (l *lab) nodes() (pods int, err error) {
	l.t.Helper()
	var all corev1.PodList
	if err := l.List(l.t.Context(), &all, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/name": "feed-server"}); err != nil {
		return 0, err
	}
	there := map[string]bool{}
	for i := range all.Items {
		pod := &all.Items[i]
		if pod.DeletionTimestamp != nil {
			continue
		}
		there[pod.Name] = true
		if l.servers[pod.Name] != nil {
			continue
		}
		l.servers[pod.Name] = testenv.StartFeedServer(l.t, testenv.FeedServerOptions{Site: "demo", NATS: l.nats, Pod: pod.Name, Flags: []string{"--feed-server=demo"}})
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		if err := l.Status().Update(l.t.Context(), pod); err != nil && !apierrors.IsNotFound(err) {
			return 0, err
		}
	}
	for name, server := range l.servers {
		if !there[name] {
			server.Kill()
			delete(l.servers, name)
		}
	}
	return len(there), nil
}

// replicas are what the FeedServer asks for, what its Deployment does, and how many pods there are.
func (l *lab) replicas() (asked, deployed int32, pods int, err error) {
	l.t.Helper()
	server := &unstructured.Unstructured{}
	server.SetAPIVersion("substorm.dev/v1alpha1")
	server.SetKind("FeedServer")
	if err := l.Get(l.t.Context(), client.ObjectKey{Namespace: namespace, Name: "demo"}, server); err != nil {
		return 0, 0, 0, err
	}
	n, _, _ := unstructured.NestedInt64(server.Object, "spec", "replicas")
	d := &appsv1.Deployment{}
	if err := l.Get(l.t.Context(), client.ObjectKey{Namespace: namespace, Name: "demo-feed-server"}, d); err != nil {
		return 0, 0, 0, err
	}
	pods, err = l.nodes()
	return int32(n), *d.Spec.Replicas, pods, err
}

// awaitReplicas waits until so many pods are asked for, and are there.
func (l *lab) awaitReplicas(want int32) {
	l.t.Helper()
	eventually(l.t, fmt.Sprintf("%d feed servers", want), func() error {
		asked, deployed, pods, err := l.replicas()
		if err == nil && (asked != want || deployed != want || pods != int(want)) {
			err = fmt.Errorf("asked %d, the Deployment %d, pods %d; %s", asked, deployed, pods, l.active())
		}
		return err
	})
}

// active is what the HorizontalPodAutoscaler says of its metrics.
func (l *lab) active() string {
	hpa := &autoscalingv2.HorizontalPodAutoscaler{}
	if err := l.Get(l.t.Context(), client.ObjectKey{Namespace: namespace, Name: "demo-feed-server"}, hpa); err != nil {
		return err.Error()
	}
	for _, c := range hpa.Status.Conditions {
		if c.Type == autoscalingv2.ScalingActive {
			return fmt.Sprintf("%s/%s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return "no condition ScalingActive"
}

// read asks the API server for a metric, as a HorizontalPodAutoscaler does.
func (l *lab) read(metric, selector string) (string, error) {
	l.t.Helper()
	config := rest.CopyConfig(l.api.Config)
	config.Impersonate.UserName = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return "", err
	}
	url := strings.TrimSuffix(config.Host, "/") + "/apis/external.metrics.k8s.io/v1beta1/namespaces/" + namespace + "/" + metric + "?labelSelector=" + selector
	response, err := transport.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", response.Status, body)
	}
	var list struct {
		Items []struct {
			Value string `json:"value"`
		} `json:"items"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return "", err
	}
	if len(list.Items) != 1 {
		return "", fmt.Errorf("%d values: %s", len(list.Items), body)
	}
	return list.Items[0].Value, nil
}

// view opens event streams of the consumer viewer, at any of the feed servers. The returned function closes them.
func (l *lab) view(n int) (closeAll func()) {
	l.t.Helper()
	secret := &corev1.Secret{}
	eventually(l.t, "the consumer's token", func() error {
		err := l.Get(l.t.Context(), client.ObjectKey{Namespace: namespace, Name: "viewer-consumer"}, secret)
		if err == nil && len(secret.Data["token"]) == 0 {
			err = errors.New("none")
		}
		return err
	})
	var server *testenv.FeedServer
	for _, server = range l.servers {
		break
	}
	ctx, cancel := context.WithCancel(l.t.Context())
	l.t.Cleanup(cancel)
	for range n {
		eventually(l.t, "an event stream", func() error {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+server.Address()+"/feeds/all/events?consumer=viewer", nil)
			if err != nil {
				return err
			}
			request.Header.Set("Authorization", "Bearer "+string(secret.Data["token"]))
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return err
			}
			if response.StatusCode != http.StatusOK {
				body, _ := io.ReadAll(response.Body)
				response.Body.Close()
				return fmt.Errorf("%s: %s", response.Status, body)
			}
			go func() { // the context ends it
				_, _ = bufio.NewReader(response.Body).WriteTo(io.Discard)
				response.Body.Close()
			}()
			return nil
		})
	}
	return cancel
}

func (l *lab) create(o client.Object) {
	l.t.Helper()
	if o.GetNamespace() == "" {
		if namespaced, err := l.IsObjectNamespaced(o); err == nil && namespaced {
			o.SetNamespace(namespace)
		}
	}
	if err := l.Create(l.t.Context(), o, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
		l.t.Fatalf("%s %s: %v", o.GetObjectKind().GroupVersionKind().Kind, o.GetName(), err)
	}
}

func (l *lab) decode(manifests string) (objects []*unstructured.Unstructured) {
	l.t.Helper()
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096); ; {
		var o unstructured.Unstructured
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			l.t.Fatal(err)
		}
		if len(o.Object) > 0 {
			objects = append(objects, &o)
		}
	}
}

// sample reads a sample of the documentation.
func sample(t *testing.T, name string, to any) {
	t.Helper()
	folder, err := testenv.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "docs", "samples", "scaling", name))
	if err == nil {
		err = kyaml.UnmarshalStrict(text, to)
	}
	if err != nil {
		t.Fatal(err)
	}
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
