// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// TestSelectBySite: the API server lists those pools, and those Instruments, that name a Site, as
// `kubectl get inst --field-selector spec.siteRef.name=hub` asks.
func TestSelectBySite(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "select-"}}
	if err := api.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(apiConfig, client.Options{Scheme: v1alpha1Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	for pool, site := range map[string]string{"first": "hub", "second": "other"} {
		gateway := &v1alpha1.IngestGateway{ObjectMeta: metav1.ObjectMeta{Name: pool, Namespace: namespace.Name},
			Spec: v1alpha1.IngestGatewaySpec{SiteRef: v1alpha1.LocalReference{Name: site}}}
		if err := c.Create(t.Context(), gateway); err != nil {
			t.Fatal(err)
		}
		instrument := &v1alpha1.Instrument{ObjectMeta: metav1.ObjectMeta{Name: pool, Namespace: namespace.Name},
			Spec: v1alpha1.InstrumentSpec{SiteRef: v1alpha1.LocalReference{Name: site}, Type: "Magnetometer"}}
		if err := c.Create(t.Context(), instrument); err != nil {
			t.Fatal(err)
		}
	}
	var instruments v1alpha1.InstrumentList
	if err := c.List(t.Context(), &instruments, client.InNamespace(namespace.Name), client.MatchingFields{"spec.siteRef.name": "hub"}); err != nil {
		t.Fatal(err)
	}
	if len(instruments.Items) != 1 || instruments.Items[0].Name != "first" {
		t.Errorf("of Site hub are the Instruments %v", instruments.Items)
	}
	var pools v1alpha1.IngestGatewayList
	if err := c.List(t.Context(), &pools, client.InNamespace(namespace.Name), client.MatchingFields{"spec.siteRef.name": "hub"}); err != nil {
		t.Fatal(err)
	}
	if len(pools.Items) != 1 || pools.Items[0].Name != "first" {
		t.Errorf("of Site hub are %v", pools.Items)
	}
}
