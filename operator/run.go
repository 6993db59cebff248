// SPDX-License-Identifier: Apache-2.0

// Package operator is the control plane: it turns Sites, IngestGateways and
// Instruments into workloads, registry entries, streams and conditions. It is
// not on the data path.
package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/substorm/substorm/internal/cgroup"
	"github.com/substorm/substorm/internal/flags"
	"github.com/substorm/substorm/internal/natsaccounts"
	"github.com/substorm/substorm/operator/api/readable"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/controller"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/workload"
)

// leaseName is the Lease by which one of several operators leads.
const leaseName = "substorm-operator.substorm.dev"

// Config of the operator.
type Config struct {
	// Kubernetes is how to reach the API server.
	Kubernetes *rest.Config
	// Namespaces to watch; none means all.
	Namespaces []string
	// ClusterID names the cluster in the markers of Sites, see controller.Config.
	ClusterID string
	// Images are the images of pods, and Pull is how nodes get them.
	Images controller.Images
	Pull   workload.Pulling
	// StatusRate, FiguresRate and Workers are as in controller.Config.
	StatusRate, FiguresRate float64
	Workers                 int
	// SecretRate and WatchSecrets are as in controller.Config.
	SecretRate   float64
	WatchSecrets bool
	// ReadNodes is as in controller.Config.
	ReadNodes bool
	// MetricsAddress, ProbeAddress and PprofAddress are listened on; "0" for not at all.
	MetricsAddress, ProbeAddress, PprofAddress string
	// LeaderElection lets one of several operators work; its Lease is in Namespace, by default the pod's own.
	LeaderElection bool
	Namespace      string
	// Standalone, where it is set, runs a Site without a cluster: see plan.Standalone.
	Standalone *plan.Standalone
	// Link is controller.Config.Link.
	Link func(*natsaccounts.Link) natsaccounts.LinkState
	// Disk is controller.Config.Disk.
	Disk func() plan.Disk
	// Manifests is controller.Config.Manifests.
	Manifests func() *plan.Manifests
	Log       *slog.Logger
}

// Run works until ctx ends, or until it no longer leads.
func Run(ctx context.Context, cfg Config) error {
	if err := flags.Required("--gateway-image", cfg.Images.Gateway, "--feed-server-image", cfg.Images.FeedServer, "--archivist-image", cfg.Images.Archivist,
		"--mirror-image", cfg.Images.Mirror); err != nil {
		return err
	}
	if cfg.StatusRate < 0 || cfg.FiguresRate < 0 || cfg.Workers < 0 || cfg.SecretRate < 0 {
		return errors.New("--status-rate, --figures-rate, --secret-rate and --workers take numbers greater than 0, or 0 for the default")
	}
	switch cfg.Pull.Policy {
	case "", corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever:
	default:
		return fmt.Errorf("--image-pull-policy %q is invalid: choose Always, IfNotPresent or Never", cfg.Pull.Policy)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cgroup.Memory() // so that the heap is collected before the container's limit ends the program
	ctrl.SetLogger(logr.FromSlogHandler(cfg.Log.Handler()))
	mgr, err := manager(cfg)
	if err != nil {
		return err
	}
	err = controller.Setup(ctx, mgr, controller.Config{
		Images: cfg.Images, Pull: cfg.Pull, StatusRate: cfg.StatusRate, FiguresRate: cfg.FiguresRate, Workers: cfg.Workers,
		ClusterID: cfg.ClusterID, SecretRate: cfg.SecretRate, WatchSecrets: cfg.WatchSecrets, Namespaces: cfg.Namespaces,
		ReadNodes: cfg.ReadNodes, Link: cfg.Link, Disk: cfg.Disk, Manifests: cfg.Manifests, Log: cfg.Log, Metrics: metrics.Registry,
	})
	if err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("operator: %w", err)
	}
	return nil
}

// NewScheme knows Kubernetes' kinds and ours.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme))
}

func manager(cfg Config) (ctrl.Manager, error) {
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	namespaces := map[string]cache.Config{}
	for _, name := range cfg.Namespaces {
		namespaces[name] = cache.Config{}
	}
	stop := 10 * time.Second
	mgr, err := ctrl.NewManager(readable.Config(cfg.Kubernetes, scheme, cfg.Log), ctrl.Options{
		Scheme:                        scheme,
		MapperProvider:                newMapper,
		Logger:                        logr.FromSlogHandler(cfg.Log.Handler()),
		Cache:                         cache.Options{DefaultNamespaces: namespaces, ByObject: controller.CacheObjects(cfg.Standalone), DefaultTransform: cache.TransformStripManagedFields()},
		Metrics:                       server.Options{BindAddress: cfg.MetricsAddress},
		HealthProbeBindAddress:        cfg.ProbeAddress,
		PprofBindAddress:              cfg.PprofAddress,
		LeaderElection:                cfg.LeaderElection,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       cfg.Namespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       &stop,
	})
	if err != nil {
		return nil, fmt.Errorf("operator: %w", err)
	}
	if err := errors.Join(mgr.AddHealthzCheck("alive", healthz.Ping), mgr.AddReadyzCheck("alive", healthz.Ping)); err != nil {
		return nil, fmt.Errorf("operator: %w", err)
	}
	return mgr, nil
}
