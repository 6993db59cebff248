// SPDX-License-Identifier: Apache-2.0

// Package metricsbridge serves what the operator exports of pools and space weather to HorizontalPodAutoscalers: it is the
// cluster's external.metrics.k8s.io.
//
//	HorizontalPodAutoscaler ─► API server ─► provider ─► source ─► /metrics of the operator
//
// It needs no Prometheus server, keeps nothing, and may read nothing in the cluster. A value that is not known is an error, upon
// which a HorizontalPodAutoscaler does not scale, and never 0.
package metricsbridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/apiserver"
	adapter "sigs.k8s.io/custom-metrics-apiserver/pkg/cmd"

	"github.com/substorm/substorm/internal/cgroup"
	"github.com/substorm/substorm/internal/flags"
	"github.com/substorm/substorm/internal/telemetry"
)

// Config of the bridge.
type Config struct {
	// Operators are the URLs of operators' metrics.
	Operators []string
	// Kubeconfig is a file that says how to reach the API server; empty: as a pod does.
	Kubeconfig string
	// Listen is the address of the API, ListenHTTP the address of /healthz, /readyz and /metrics.
	Listen, ListenHTTP string
	// ServiceName and ServiceNamespace are of the Service that the APIService names.
	ServiceName, ServiceNamespace string
	// TLSDir has tls.crt and tls.key; empty: a certificate is made in memory, and its authority is written into the APIService.
	TLSDir string
	Log    *slog.Logger
}

func (cfg *Config) check() error {
	if len(cfg.Operators) == 0 {
		return errors.New("--operator-metrics is not set")
	}
	if cfg.TLSDir != "" {
		return nil
	}
	return flags.Required("--service-name", cfg.ServiceName, "--service-namespace", cfg.ServiceNamespace)
}

// Run serves until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.check(); err != nil {
		return err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cgroup.Memory() // so that the heap is collected before the container's limit ends the program
	klog.SetSlogLogger(cfg.Log)
	registry := telemetry.NewRegistry("metrics-bridge")
	from, err := newSource(cfg.Operators, registry)
	if err != nil {
		return err
	}
	health, err := telemetry.NewServer(telemetry.ServerConfig{Address: cfg.ListenHTTP, Metrics: registry})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	server, err := newServer(ctx, group, cfg, newProvider(from, registry))
	if err != nil {
		return err
	}
	group.Go(func() error { return health.Serve(ctx) })
	group.Go(func() error { return server.GenericAPIServer.PrepareRun().RunWithContext(ctx) })
	return group.Wait()
}

// newServer makes the API server, and has the group keep its certificate.
func newServer(ctx context.Context, group *errgroup.Group, cfg Config, of *provider) (*apiserver.CustomMetricsAdapterServer, error) {
	base := &adapter.AdapterBase{Name: "metrics-bridge", FlagSet: pflag.NewFlagSet("", pflag.ContinueOnError), RemoteKubeConfigFile: cfg.Kubeconfig}
	base.InstallFlags()
	base.Authentication.RemoteKubeConfigFile, base.Authorization.RemoteKubeConfigFile = cfg.Kubeconfig, cfg.Kubeconfig
	base.Features.EnableProfiling, base.EnableMetrics = false, false
	base.SecureServing.MinTLSVersion = "VersionTLS13"
	base.SecureServing.ServerCert.CertDirectory = "" // nothing is written
	if cfg.TLSDir != "" {
		base.SecureServing.ServerCert.CertKey.CertFile = filepath.Join(cfg.TLSDir, "tls.crt")
		base.SecureServing.ServerCert.CertKey.KeyFile = filepath.Join(cfg.TLSDir, "tls.key")
	}
	base.WithExternalMetrics(of)
	var err error
	if base.SecureServing.Listener, err = net.Listen("tcp", cfg.Listen); err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	config, err := base.Config()
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	if cfg.TLSDir == "" {
		own, err := newCertificate(cfg.ServiceName + "." + cfg.ServiceNamespace + ".svc")
		if err != nil {
			return nil, err
		}
		config.GenericConfig.SecureServing.Cert = own
		if err := keepPublished(ctx, group, cfg, own); err != nil {
			return nil, err
		}
	}
	server, err := base.Server()
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	return server, nil
}

// keepPublished has the APIService know the certificate's authority.
func keepPublished(ctx context.Context, group *errgroup.Group, cfg Config, own *certificate) error {
	kubernetes, err := clientcmd.BuildConfigFromFlags("", cfg.Kubeconfig)
	if err != nil {
		return fmt.Errorf("reach the API server: %w: set --kubeconfig outside a pod", err)
	}
	client, err := dynamic.NewForConfig(kubernetes)
	if err != nil {
		return err
	}
	p := &publisher{services: client.Resource(apiServices), namespace: cfg.ServiceNamespace, name: cfg.ServiceName, log: cfg.Log}
	group.Go(func() error { return p.run(ctx, own) })
	return nil
}
