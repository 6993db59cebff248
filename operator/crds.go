// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/crds"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/operator/plan/workload"
)

// ApplyCRDs applies this version's CustomResourceDefinitions, server-side, and
// waits until the API server serves them. Helm does not upgrade CRDs: the
// chart runs this before it upgrades the rest.
func ApplyCRDs(ctx context.Context, cfg *rest.Config, log *slog.Logger) error {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return err
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("apply CRDs: %w", err)
	}
	files, err := fs.Glob(crds.Files, "*.yaml")
	if err != nil {
		return fmt.Errorf("apply CRDs: %w", err)
	}
	for _, file := range files {
		name, err := applyCRD(ctx, c, file)
		if err != nil {
			return fmt.Errorf("apply CRD %s: %w", file, err)
		}
		log.Info("applied CRD", "name", name)
	}
	return nil
}

func applyCRD(ctx context.Context, c client.Client, file string) (name string, err error) {
	data, err := crds.Files.ReadFile(file)
	if err != nil {
		return "", err
	}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &u.Object); err != nil {
		return "", err
	}
	name = u.GetName()
	err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(workload.FieldOwner), client.ForceOwnership)
	if err != nil {
		return name, err
	}
	return name, awaitCRD(ctx, c, name)
}

func awaitCRD(ctx context.Context, c client.Client, name string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
			return err
		}
		for _, condition := range crd.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}
		if !retry.Sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("the API server does not serve it: %w", ctx.Err())
		}
	}
}
