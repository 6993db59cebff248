// SPDX-License-Identifier: Apache-2.0

package metricsbridge

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// apiService is the APIService of external metrics; a cluster has one.
const apiService = "v1beta1.external.metrics.k8s.io"

var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// checkEvery is how often the APIService is looked at. It is read by name, which costs little, and so needs no right to watch.
const checkEvery = 10 * time.Second

// publisher tells the API server which authority to trust for the bridge's certificate.
type publisher struct {
	services        dynamic.ResourceInterface
	namespace, name string // of the Service
	log             *slog.Logger
}

// run keeps the authority published until ctx ends, and renews the certificate.
func (p *publisher) run(ctx context.Context, own *certificate) error {
	said := ""
	for {
		if err := own.renew(time.Now()); err != nil {
			return err
		}
		err := p.publish(ctx, own.trusted())
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			p.log.Warn("cannot publish the bridge's certificate to the API server: it may not query the bridge meanwhile", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(checkEvery):
		}
	}
}

// publish writes the authority into the APIService, where it is another one.
func (p *publisher) publish(ctx context.Context, authority []byte) error {
	found, err := p.services.Get(ctx, apiService, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the APIService %s: %w", apiService, err)
	}
	namespace, _, _ := unstructured.NestedString(found.Object, "spec", "service", "namespace")
	name, _, _ := unstructured.NestedString(found.Object, "spec", "service", "name")
	if namespace != p.namespace || name != p.name {
		return fmt.Errorf("the APIService %s belongs to the Service %s/%s, not to %s/%s: a cluster has one server of external metrics, such as KEDA's; remove that one or this one",
			apiService, namespace, name, p.namespace, p.name)
	}
	bundle := base64.StdEncoding.EncodeToString(authority)
	if current, _, _ := unstructured.NestedString(found.Object, "spec", "caBundle"); current == bundle {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"caBundle": bundle}})
	if err != nil {
		return err
	}
	if _, err := p.services.Patch(ctx, apiService, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("write the authority into the APIService %s: %w", apiService, err)
	}
	p.log.Info("the API server knows the bridge's certificate", "apiService", apiService)
	return nil
}
