// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/flags"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/operator/api/readable"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// CheckConfig says what Check looks at.
type CheckConfig struct {
	// Kubernetes is how to reach the API server.
	Kubernetes *rest.Config
	// Namespaces that the operator looks after; none means all.
	Namespaces []string
	// Namespace has the leader's Lease.
	Namespace string
	// Patience is how long to wait for objects that do not exist yet.
	Patience time.Duration
	Log      *slog.Logger
}

// Check verifies that the API server serves every kind of this build in each namespace, to any client, and that an operator leads. Like the
// operator, it continues if an object cannot be decoded; the log names the object.
func Check(ctx context.Context, cfg CheckConfig) error {
	if err := flags.Required("--namespace", cfg.Namespace); err != nil {
		return err
	}
	scheme, err := NewScheme()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.Patience)
	defer cancel()
	for last := error(nil); ; {
		// A new client each time: it remembers which kinds there are.
		c, err := client.New(readable.Config(cfg.Kubernetes, scheme, cfg.Log), client.Options{Scheme: scheme})
		if err == nil {
			err = errors.Join(checkKinds(ctx, c, scheme, cfg), checkLeader(ctx, c, cfg))
		}
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // the missing object, rather than that time is up
			last = err
			cfg.Log.Info("not yet", "error", err)
		}
		if !retry.Sleep(ctx, time.Second) {
			return last
		}
	}
}

// checkKinds asks for one object of each kind in each namespace.
func checkKinds(ctx context.Context, c client.Client, scheme *runtime.Scheme, cfg CheckConfig) error {
	namespaces := cfg.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""} // all
	}
	var problems []error
	for name := range scheme.KnownTypes(v1alpha1.GroupVersion) {
		kind, is := strings.CutSuffix(name, "List")
		if !is || !scheme.Recognizes(v1alpha1.GroupVersion.WithKind(kind)) {
			continue // not one of our kinds, but one of those that each group has
		}
		for _, namespace := range namespaces {
			list, err := scheme.New(v1alpha1.GroupVersion.WithKind(name))
			if err != nil {
				return err
			}
			err = c.List(ctx, list.(client.ObjectList), client.InNamespace(namespace), client.Limit(1))
			switch {
			case meta.IsNoMatchError(err):
				problems = append(problems, fmt.Errorf("the API server does not know the kind %s: apply crds/ of this release: %w", kind, err))
			case err != nil:
				problems = append(problems, fmt.Errorf("list %s in namespace %q: %w", kind, namespace, err))
			default:
				cfg.Log.Info("served", "kind", kind, "namespace", namespace)
			}
		}
	}
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(problems...)
}

// checkLeader verifies that an operator holds the Lease and has renewed it in time.
func checkLeader(ctx context.Context, c client.Client, cfg CheckConfig) error {
	lease := &coordinationv1.Lease{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: cfg.Namespace, Name: leaseName}, lease); err != nil {
		return fmt.Errorf("read the Lease of the operator that leads: %w", err)
	}
	spec := lease.Spec
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" || spec.RenewTime == nil || spec.LeaseDurationSeconds == nil {
		return fmt.Errorf("the Lease %s/%s has no holder: no operator leads; see the pods of the operator and their logs", lease.Namespace, lease.Name)
	}
	if late := time.Since(spec.RenewTime.Add(time.Duration(*spec.LeaseDurationSeconds) * time.Second)); late > 0 {
		return fmt.Errorf("the Lease %s/%s of %s has not been renewed in time: no operator leads; see its pods and their logs", lease.Namespace, lease.Name, *spec.HolderIdentity)
	}
	cfg.Log.Info("leads", "operator", *spec.HolderIdentity)
	return nil
}
