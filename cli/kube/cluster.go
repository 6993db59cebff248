// SPDX-License-Identifier: Apache-2.0

// Package kube finds the cluster that kubectl would talk to, the Sites in it,
// and a way to what only the cluster's own network reaches.
package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/substorm/substorm/operator/api/readable"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/finding"
)

// Flags choose a cluster and a namespace, as kubectl's do.
type Flags struct {
	Kubeconfig, Context, Namespace string
}

// Add adds the flags.
func (f *Flags) Add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.Namespace, "namespace", "n", "", "namespace of the Site (default: the kubeconfig's)")
	flags.StringVar(&f.Kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, ~/.kube/config, that of the Site which substorm up runs here, or the pod's account)")
	flags.StringVar(&f.Context, "context", "", "context of the kubeconfig")
}

// Cluster is a Kubernetes API server and a namespace in it.
type Cluster struct {
	Client    client.Client
	Namespace string
	config    *rest.Config
}

// Open finds the cluster. It does not talk to it yet.
func Open(f Flags) (*Cluster, error) {
	// Kubernetes' libraries log to standard error what callers get as errors.
	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(logr.Discard())
	loader := f.Loader()
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, findError(err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("find the namespace: %w", err)
	}
	return New(config, namespace)
}

// New is Open for a configuration that is known already.
func New(config *rest.Config, namespace string) (*Cluster, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), batchv1.AddToScheme(scheme), storagev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	// An object that cannot be decoded says so in an annotation, and hides no other.
	c, err := client.New(readable.Config(config, scheme, slog.New(slog.DiscardHandler)), client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("reach the cluster at %s: %w", config.Host, err)
	}
	return &Cluster{Client: c, Namespace: namespace, config: config}, nil
}

// Site returns the Site of that name, or with an empty name the only one there is.
func (c *Cluster) Site(ctx context.Context, name string) (*v1alpha1.Site, error) {
	if name != "" {
		site := &v1alpha1.Site{}
		err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, site)
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("no Site %q in namespace %q: substorm get site -A lists them, -n chooses the namespace", name, c.Namespace)
		}
		if err != nil {
			return nil, c.explain(err)
		}
		return site, c.Effective(ctx, site)
	}
	sites := &v1alpha1.SiteList{}
	if err := c.List(ctx, sites); err != nil {
		return nil, err
	}
	switch len(sites.Items) {
	case 1:
		return &sites.Items[0], c.Effective(ctx, &sites.Items[0])
	case 0:
		return nil, fmt.Errorf("no Site in namespace %q: substorm get site -A lists them, -n chooses the namespace", c.Namespace)
	default:
		var names []string
		for i := range sites.Items {
			names = append(names, sites.Items[i].Name)
		}
		return nil, fmt.Errorf("several Sites in namespace %q: choose one with --site: %s", c.Namespace, strings.Join(names, ", "))
	}
}

// Effective replaces the servers that a Site of the namespace names by those that it uses: if `substorm up` runs the Site, they are
// different. Error: a Site that cannot be read, or servers that are not published.
func (c *Cluster) Effective(ctx context.Context, site *v1alpha1.Site) error {
	if err := unreadable(site); err != nil {
		return err
	}
	said := meta.IsStatusConditionTrue(site.Status.Conditions, v1alpha1.ConditionNotApplied)
	if !said && site.Status.ObservedGeneration > 0 {
		return nil
	}
	secret, err := c.Secret(ctx, plan.StandaloneSecret)
	if err != nil && !said { // it does not run yet, or it runs in a cluster
		return nil
	}
	if err != nil {
		return err
	}
	var own plan.Standalone
	if err := json.Unmarshal(secret.Data[plan.KeyStandalone], &own); err != nil {
		return fmt.Errorf("Secret %s/%s, %s: %w: start substorm up again, which writes it", c.Namespace, plan.StandaloneSecret, plan.KeyStandalone, err)
	}
	own.Apply(site)
	return nil
}

// IsStandalone says whether `substorm up` serves the namespace. A user who may not read that is taken to ask a cluster.
func (c *Cluster) IsStandalone(ctx context.Context) bool {
	return c.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: plan.StandaloneSecret}, &corev1.Secret{}) == nil
}

// unreadable is an error where a Site cannot be decoded: what of it was left out may be what
// matters.
func unreadable(site *v1alpha1.Site) error {
	if why := finding.Unreadable(site); why != "" {
		return fmt.Errorf("this version cannot read Site %q in namespace %q (%s): correct the Site, or use the version that it was written for", site.Name, site.Namespace, why)
	}
	return nil
}

// List lists what is in the namespace, or in all where it is empty.
func (c *Cluster) List(ctx context.Context, list client.ObjectList) error {
	if err := c.Client.List(ctx, list, client.InNamespace(c.Namespace)); err != nil {
		return c.explain(err)
	}
	return nil
}

// Secret returns a Secret of the namespace.
func (c *Cluster) Secret(ctx context.Context, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, secret)
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", c.Namespace, name, err)
	}
	return secret, nil
}

// explain adds what to do to an error of the API server.
func (c *Cluster) explain(err error) error {
	var away *url.Error
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &away): // without the request and the client's own words around it
		return fmt.Errorf("reach the API server at %s: %w: see that it runs, or name another cluster with --kubeconfig, $KUBECONFIG or --context", c.config.Host, away.Err)
	case meta.IsNoMatchError(err):
		return &unknownKinds{c.config.Host, err}
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: ask for the right to read Substorm's resources", err)
	default:
		return err
	}
}

// unknownKinds is the error of a cluster that lacks all or some of Substorm's kinds, in place of one that names what was asked of its API.
type unknownKinds struct {
	host string
	err  error
}

// Error implements error.
func (e *unknownKinds) Error() string {
	kinds := "Substorm's kinds"
	var one *meta.NoKindMatchError
	if errors.As(e.err, &one) {
		kinds = one.GroupKind.String()
	}
	return fmt.Sprintf("the cluster at %s does not know %s: install or update the chart charts/substorm, or name another cluster with --kubeconfig, $KUBECONFIG or --context", e.host, kinds)
}

// Unwrap returns the API server's error.
func (e *unknownKinds) Unwrap() error { return e.err }
