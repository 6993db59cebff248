// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/bench/internal/aurora"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

const (
	// podLimit is the processor time that a pod has, in thousandths of a core.
	podLimit = 150
	// maxPods both policies may have in a pool, and floor is how many ours has while the level holds: by its own target (70%) the storm
	// needs three that are full to 67%, and one is to spare.
	maxPods, floor = 5, 4
	// hpaTarget is the default target of HorizontalPodAutoscaler.
	hpaTarget   = 80
	level       = "storm"
	feedPort    = 8080
	feedMetrics = 9090
	gateMetrics = 8080
	imagesPort  = 30103
)

// policy is who asks for pods. It has a FeedServer and an IngestGateway of its name.
type policy struct {
	name   string
	driver v1alpha1.AutoscalingDriver
	// port of its gateways, to which the Instrument camera sends.
	port   int
	camera string
}

var policies = []policy{
	{"ours", v1alpha1.DriverOperator, 4101, "camera-ours"},
	{"hpa", v1alpha1.DriverHorizontalPodAutoscaler, 4201, "camera-hpa"},
}

func (p policy) feedServers(c *cluster) pods {
	return pods{Kubeconfig: c.kubeconfig, Service: p.name + "-feed-server", Port: feedPort}
}

func (p policy) gateways(c *cluster) pods {
	return pods{Kubeconfig: c.kubeconfig, Service: p.name, Port: p.port}
}

// pools are the policy's two, as objects.
func (p policy) pools() []client.Object {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: p.name}
	return []client.Object{&v1alpha1.FeedServer{ObjectMeta: meta}, &v1alpha1.IngestGateway{ObjectMeta: meta}}
}

// declare applies what both policies have, and the Instruments of the archive.
func (b *bench) declare(ctx context.Context) error {
	proxy, err := b.own(ctx)
	if err != nil {
		return err
	}
	if err := b.apply(ctx, b.manifests(proxy)); err != nil {
		return err
	}
	for _, p := range policies {
		if err := b.reset(ctx, p); err != nil {
			return err
		}
	}
	b.line("the pools and Instruments are declared")
	return b.ready(ctx, "instrument/"+aurora.Live, "instrument/"+aurora.Old, "instrument/"+aurora.Films, "instrument/"+policies[0].camera, "instrument/"+policies[1].camera)
}

// manifests are what both policies have, behind a proxy at an address, and the Instruments of the archive.
func (a authority) manifests(proxy string) string {
	all := fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: gateway-tls}\ntype: kubernetes.io/tls\ndata: {tls.crt: %s, tls.key: %s}\n",
		base64.StdEncoding.EncodeToString(a.certificate), base64.StdEncoding.EncodeToString(a.key))
	for _, p := range policies {
		all += manifest("FeedServer", p.name, "proxies: ["+proxy+"/32]", podTemplate("1Gi"))
		all += manifest("IngestGateway", p.name, fmt.Sprintf("ports: {first: %[1]d, last: %[1]d}", p.port), "service: {type: ClusterIP}",
			"tls: {certificateSecretRef: {name: gateway-tls}}", podTemplate("512Mi"))
		all += camera(p.camera, p.name, fmt.Sprintf("listeners: [{name: frames, protocol: TCP, port: %d, tcp: {tlsMode: Server}}]", p.port))
	}
	for _, name := range []string{aurora.Live, aurora.Old, aurora.Films} {
		all += camera(name, site, fmt.Sprintf("listeners: [{name: files, protocol: HTTP, port: %d}]", imagesPort), "access: {live: Public, archive: Public}")
	}
	return all
}

// manifest is the manifest of an object of the Site, with these lines in its spec.
func manifest(kind, name string, spec ...string) string {
	return fmt.Sprintf("---\napiVersion: substorm.dev/v1alpha1\nkind: %s\nmetadata: {name: %s}\nspec:\n  siteRef: {name: %s}\n  %s\n", kind, name, site, strings.Join(spec, "\n  "))
}

// podTemplate gives pods podLimit, and memory up to a limit.
func podTemplate(memory string) string {
	return fmt.Sprintf("podTemplate: {resources: {requests: {cpu: %[1]dm, memory: 256Mi}, limits: {cpu: %[1]dm, memory: %[2]s}}}", podLimit, memory)
}

// camera is the manifest of an Instrument that sends to a pool of gateways.
func camera(name, gateway string, spec ...string) string {
	return manifest("Instrument", name, append([]string{"gatewayRef: {name: " + gateway + "}", "type: AllSkyCamera"}, spec...)...)
}

func (b *bench) ready(ctx context.Context, resources ...string) error {
	argv := append([]string{b.kubectl, "-n", namespace, "wait", "--for=condition=Ready", "--timeout", patience.String()}, resources...)
	return b.show(ctx, argv...)
}

// own is the address by which pods see this machine.
func (b *bench) own(ctx context.Context) (string, error) {
	var list corev1.NodeList
	if err := b.List(ctx, &list); err != nil {
		return "", err
	}
	for _, a := range list.Items[0].Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			conn, err := net.Dial("udp", net.JoinHostPort(a.Address, "9"))
			if err != nil {
				return "", err
			}
			defer conn.Close()
			host, _, err := net.SplitHostPort(conn.LocalAddr().String())
			return host, err
		}
	}
	return "", fmt.Errorf("node %s has no address", list.Items[0].Name)
}

// patch merges a change into an object.
func (b *bench) patch(ctx context.Context, o client.Object, change any) error {
	text, err := json.Marshal(change)
	if err != nil {
		return err
	}
	return b.Patch(ctx, o, client.RawPatch(types.MergePatchType, text))
}

type fields map[string]any

// theSite is the Site, as an object to patch.
func theSite() client.Object {
	return &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: site}}
}

// reset has a policy ask for nothing, and gives each of its pools one pod.
func (b *bench) reset(ctx context.Context, p policy) error {
	if err := client.IgnoreNotFound(b.DeleteAllOf(ctx, &autoscalingv2.HorizontalPodAutoscaler{}, client.InNamespace(namespace))); err != nil {
		return err
	}
	if err := b.patch(ctx, theSite(), fields{"spec": fields{"spaceWeather": nil, "surge": nil}}); err != nil {
		return err
	}
	for _, pool := range p.pools() {
		if err := b.patch(ctx, pool, fields{"spec": fields{"autoscaling": nil, "replicas": 1}}); err != nil {
			return err
		}
		if err := await(ctx, func() error {
			if err := b.Get(ctx, client.ObjectKeyFromObject(pool), pool); err != nil {
				return err
			}
			is := stateOf(pool)
			if is.Pods != 1 || is.Ready != 1 {
				return fmt.Errorf("%T %s has %d pods, %d of them ready", pool, p.name, is.Pods, is.Ready)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// autoscaling has a policy's driver ask for the pods of a pool.
func autoscaling(p policy) fields {
	return fields{"spec": fields{"autoscaling": fields{"driver": p.driver, "minReplicas": 1, "maxReplicas": maxPods}}}
}

// enable lets a policy ask for pods.
func (b *bench) enable(ctx context.Context, p policy) error {
	for _, pool := range p.pools() {
		if err := b.patch(ctx, pool, autoscaling(p)); err != nil {
			return err
		}
		if p.driver != v1alpha1.DriverHorizontalPodAutoscaler {
			continue
		}
		if err := b.autoscale(ctx, pool); err != nil {
			return err
		}
	}
	return nil
}

// hpaOf is a HorizontalPodAutoscaler of a pool, with its defaults.
func hpaOf(pool client.Object) *autoscalingv2.HorizontalPodAutoscaler {
	kind := "FeedServer"
	if _, ok := pool.(*v1alpha1.IngestGateway); ok {
		kind = "IngestGateway"
	}
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: strings.ToLower(kind)},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Name: pool.GetName()},
			MinReplicas:    new(int32(1)), MaxReplicas: maxPods,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name:   corev1.ResourceCPU,
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(hpaTarget))},
			}}},
		},
	}
}

// autoscale makes a HorizontalPodAutoscaler, and waits until it knows what pods use.
func (b *bench) autoscale(ctx context.Context, pool client.Object) error {
	hpa := hpaOf(pool)
	if err := b.Create(ctx, hpa); err != nil {
		return err
	}
	return await(ctx, func() error {
		if err := b.Get(ctx, client.ObjectKeyFromObject(hpa), hpa); err != nil {
			return err
		}
		for _, c := range hpa.Status.Conditions {
			if c.Type == autoscalingv2.ScalingActive && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("HorizontalPodAutoscaler %s is not active: %+v", hpa.Name, hpa.Status.Conditions)
	})
}

// kp is what GFZ Potsdam found from 16 March 2015, 21:00, on (CC BY 4.0).
var kp = []float64{0.3, 2, 4.7, 5.7, 5.3, 7.7, 7.7, 7.3, 7.7, 6, 4.7, 4.3, 4.3, 5.3, 5.3, 4.7, 4.7, 4.3, 4, 3.7}

// foretell has the Site play the storm from a time on.
func (b *bench) foretell(ctx context.Context, begin time.Time) error {
	interval := b.storm / intervals
	data, at := "time,kp\n", time.Date(2015, 3, 16, 21, 0, 0, 0, time.UTC)
	for _, value := range kp {
		data += fmt.Sprintf("%s,%g\n", at.Format(time.RFC3339), value)
		at = at.Add(3 * time.Hour)
	}
	var floors []fields
	for _, kind := range []string{"FeedServer", "IngestGateway"} {
		floors = append(floors, fields{"kind": kind, "name": policies[0].name, "replicas": floor})
	}
	return b.patch(ctx, theSite(), fields{"spec": fields{
		"spaceWeather": fields{"sources": []fields{{"name": "recorded", "type": "Recorded", "recorded": fields{
			"data": data, "startTime": begin.UTC().Format(time.RFC3339), "speedUp": int(3 * time.Hour / interval)}}}},
		"surge": fields{"hold": max(10*time.Second, 4*interval).String(), "releaseInterval": max(5*time.Second, interval).String(), "levels": []fields{{
			"name": level, "anyOf": []fields{{"allOf": []fields{{"quantity": "Kp", "atLeast": "5"}}}}, "floors": floors}}},
	}})
}
