// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

const siteManifest = `
apiVersion: substorm.dev/v1alpha1
kind: Site
metadata: {name: demo}
spec:
  code: demo
  objectStore: {endpoint: "https://s3.example:9000", bucket: archive, credentialsSecretRef: {name: s3}}
  jetStream: {servers: ["tls://nats.example:4222"], accountKeySecretRef: {name: account}}
`

// The API server takes what the benchmark declares, a watch tells what drivers ask for, and only pods that are ready are asked.
func TestAgainstAPIServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c, err := connectTo(testenv.Kubernetes(t).Config)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{cluster: &cluster{WithWatch: c}, storm: 10 * time.Minute, began: time.Now()}
	if b.authority, err = newAuthority(); err != nil {
		t.Fatal(err)
	}
	create := func(o client.Object) {
		t.Helper()
		if err := b.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	for _, text := range slices.Concat([]string{siteManifest}, strings.Split(b.manifests("192.0.2.1"), "\n---\n")) {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(text), &o.Object); err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		o.SetNamespace(namespace)
		create(o)
	}
	if err := b.foretell(ctx, time.Now()); err != nil {
		t.Error(err)
	}
	h := b.watch(ctx, policies[0])
	for _, p := range policies {
		for _, pool := range p.pools() {
			if err := b.patch(ctx, pool, autoscaling(p)); err != nil {
				t.Error(err)
			}
			if p.driver == v1alpha1.DriverHorizontalPodAutoscaler {
				create(hpaOf(pool))
			}
			if err := b.patch(ctx, pool, fields{"spec": fields{"replicas": 3}}); err != nil {
				t.Error(err)
			}
		}
	}
	for _, kind := range poolKinds {
		if err := await(ctx, func() error {
			if is := h.at(kind, time.Now()); is.Asked != 3 {
				return fmt.Errorf("%s: %+v", kind, is)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}

	create(&discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: "ours-1", Labels: map[string]string{discoveryv1.LabelServiceName: "ours"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"192.0.2.11"}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}},
			{Addresses: []string{"192.0.2.12"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false)}},
		},
	})
	found, err := policies[0].gateways(b.cluster).followBy(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if got := *found.addresses.Load(); !slices.Equal(got, []string{"192.0.2.11:4101"}) {
		t.Errorf("the gateways that are ready are %q", got)
	}
}
