// SPDX-License-Identifier: Apache-2.0

// Command operator is Substorm's control plane.
package main

import (
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/substorm/substorm/internal/flags"
	"github.com/substorm/substorm/operator"
)

func main() { flags.Main(command()) }

func command() *cobra.Command {
	cfg := operator.Config{}
	var level string
	root := &cobra.Command{
		Use:   "operator",
		Short: "Substorm's control plane: turns Sites, IngestGateways and Instruments into what receives and archives",
		Example: `  # Against the cluster of the current kubeconfig context, for two namespaces:
  operator --gateway-image registry.example/substorm/ingest-gateway:v1 \
    --feed-server-image registry.example/substorm/feed-server:v1 --archivist-image registry.example/substorm/archivist:v1 \
    --watch-namespaces north,south

  # Apply this version's CustomResourceDefinitions, as the chart does before an upgrade:
  operator crds`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) (err error) {
			if cfg.Log, err = logger(level); err != nil {
				return err
			}
			klog.SetSlogLogger(cfg.Log)
			cfg.Kubernetes, err = ctrl.GetConfig()
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return operator.Run(cmd.Context(), cfg) },
	}
	root.PersistentFlags().StringVar(&level, "log-level", env("LOG_LEVEL", "info"), "least level of what is logged: debug, info, warn or error")
	flags := root.Flags()
	flags.StringVar(&cfg.Images.Gateway, "gateway-image", env("GATEWAY_IMAGE", ""), "image of the gateway pods (required)")
	flags.StringVar(&cfg.Images.FeedServer, "feed-server-image", env("FEED_SERVER_IMAGE", ""), "image of the feed servers (required)")
	flags.StringVar(&cfg.Images.Archivist, "archivist-image", env("ARCHIVIST_IMAGE", ""), "image of the archivists (required)")
	flags.StringSliceVar(&cfg.PullSecrets, "gateway-pull-secrets", list("GATEWAY_PULL_SECRETS"), "Secrets, in the pools' and Sites' namespaces, with which the images are pulled")
	flags.StringSliceVar(&cfg.Namespaces, "watch-namespaces", list("WATCH_NAMESPACES"), "namespaces to look after (default: all)")
	flags.StringVar(&cfg.MetricsAddress, "metrics-address", env("METRICS_ADDRESS", ":8080"), "where Prometheus metrics are served")
	flags.StringVar(&cfg.ProbeAddress, "probe-address", env("PROBE_ADDRESS", ":8081"), "where /healthz and /readyz are served")
	flags.BoolVar(&cfg.LeaderElection, "leader-election", env("LEADER_ELECTION", "true") != "false", "let one of several operators work")
	flags.StringVar(&cfg.Namespace, "namespace", env("NAMESPACE", ""), "namespace of the leader's Lease (default: the pod's own)")
	root.AddCommand(&cobra.Command{
		Use:     "crds",
		Short:   "Apply this version's CustomResourceDefinitions and wait until they are served",
		Example: "  operator crds",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return operator.ApplyCRDs(cmd.Context(), cfg.Kubernetes, cfg.Log)
		},
	})
	return root
}

// env: each flag has an environment variable of its name, SUBSTORM_<FLAG>.
func env(name, otherwise string) string {
	if v, set := os.LookupEnv("SUBSTORM_" + name); set {
		return v
	}
	return otherwise
}

func list(name string) []string {
	if v := env(name, ""); v != "" {
		return strings.Split(v, ",")
	}
	return nil
}

func logger(level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: l})), nil
}
