// SPDX-License-Identifier: Apache-2.0

// Command operator is Substorm's control plane.
package main

import (
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/substorm/substorm/internal/flags"
	"github.com/substorm/substorm/internal/telemetry"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/operator"
)

// garbage is GOGC: how much garbage the heap may hold, in percent of the live heap; less than Go's default of 100. Most of the heap are
// objects and statuses that stay, and a pass over a Site with 10,000 Instruments leaves as much garbage at once; collecting it more often
// costs little compared to the pass.
const garbage = 50

func main() { usage.Main("operator", command().ExecuteContext) }

func command() *cobra.Command {
	cfg := operator.Config{}
	var level string
	root := &cobra.Command{
		Use:   "operator",
		Short: "Substorm's control plane: turns Sites, IngestGateways and Instruments into what receives and archives",
		Example: `  # Against the cluster of the current kubeconfig context, for two namespaces:
  operator --gateway-image registry.example/substorm/ingest-gateway:v1 \
    --feed-server-image registry.example/substorm/feed-server:v1 --archivist-image registry.example/substorm/archivist:v1 \
    --mirror-image registry.example/substorm/mirror-jobs:v1 --watch-namespaces north,south

  # Apply this version's CustomResourceDefinitions, as the chart does before an upgrade:
  operator crds`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err = flags.FromEnvironment(cmd.Flags(), os.Getenv); err != nil {
				return err
			}
			if cfg.Log, err = telemetry.NewLogger(os.Stderr, level); err != nil {
				return err
			}
			klog.SetSlogLogger(cfg.Log)
			cfg.Kubernetes, err = ctrl.GetConfig()
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(garbage)
			}
			return operator.Run(cmd.Context(), cfg)
		},
	}
	root.PersistentFlags().StringVar(&level, "log-level", "info", "least level of what is logged: debug, info, warn or error")
	f := root.Flags()
	f.StringVar(&cfg.Images.Gateway, "gateway-image", "", "image of the gateway pods (required)")
	f.StringVar(&cfg.Images.FeedServer, "feed-server-image", "", "image of the feed servers (required)")
	f.StringVar(&cfg.Images.Archivist, "archivist-image", "", "image of the archivists (required)")
	f.StringVar(&cfg.Images.Mirror, "mirror-image", "", "image of the runs of MirrorPartners (required)")
	f.StringVar((*string)(&cfg.Pull.Policy), "image-pull-policy", string(corev1.PullIfNotPresent),
		"when nodes pull the images, where a resource does not say so in its podTemplate: Always, IfNotPresent or Never")
	f.StringSliceVar(&cfg.Pull.Secrets, "gateway-pull-secrets", nil, "Secrets, in the pools' and Sites' namespaces, with which the images are pulled")
	f.StringSliceVar(&cfg.Namespaces, "watch-namespaces", nil, "namespaces to look after (default: all)")
	f.StringVar(&cfg.ClusterID, "cluster-id", "", "name of this cluster in the markers by which Sites of several clusters that share a bucket are told apart; "+
		"it never changes (default: the uid of the namespace kube-system, which the operator must be allowed to get)")
	f.StringVar(&cfg.MetricsAddress, "metrics-address", ":8080", "where Prometheus metrics are served")
	f.StringVar(&cfg.ProbeAddress, "probe-address", ":8081", "where /healthz and /readyz are served")
	f.StringVar(&cfg.PprofAddress, "pprof-address", "0", "where Go's profiles are served, for whoever looks for what the operator costs; 0 for not at all")
	f.Float64Var(&cfg.StatusRate, "status-rate", 0, "how many statuses a second are written at most, all kinds together (default 100)")
	f.Float64Var(&cfg.FiguresRate, "figures-rate", 0, "how many of these may bring nothing but figures up to date (default 2)")
	f.IntVar(&cfg.Workers, "workers", 0, "how many resources of a kind are looked at at once (default 4)")
	f.Float64Var(&cfg.SecretRate, "secret-rate", 0, "how many Secrets with tokens, and of FeedConsumers, a second are asked for at most whether they have changed (default 500)")
	f.BoolVar(&cfg.WatchSecrets, "watch-secrets", false, "watch the metadata of Secrets rather than ask for each; needs the rights to list and watch all Secrets of the namespaces")
	f.BoolVar(&cfg.ReadNodes, "read-nodes", false, "read the cluster's nodes and volumes, and what runs there, so as to make no pods that find no node; "+
		"needs the rights to list and watch nodes, pods, persistentvolumes and storageclasses of the whole cluster")
	f.BoolVar(&cfg.LeaderElection, "leader-election", true, "let one of several operators work")
	f.StringVar(&cfg.Namespace, "namespace", "", "namespace of the leader's Lease (default: the pod's own)")
	root.AddCommand(crdsCommand(&cfg), checkCommand(&cfg))
	return root
}

func crdsCommand(cfg *operator.Config) *cobra.Command {
	return &cobra.Command{
		Use:     "crds",
		Short:   "Apply this version's CustomResourceDefinitions and wait until they are served",
		Example: "  operator crds",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return operator.ApplyCRDs(cmd.Context(), cfg.Kubernetes, cfg.Log)
		},
	}
}

func checkCommand(cfg *operator.Config) *cobra.Command {
	check := operator.CheckConfig{}
	c := &cobra.Command{
		Use:   "check",
		Short: "Say whether an operator leads, and whether it may read every kind where it looks after them",
		Long: `Asks the API server, with the rights of whoever runs it (those of the operator, where helm test does), for each kind
in each namespace, and for the Lease of the operator that leads. It waits for what is not there yet, and fails with what is missing
in the end. It changes nothing.`,
		Example: "  operator check --watch-namespaces north,south --namespace substorm",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			check.Kubernetes, check.Log = cfg.Kubernetes, cfg.Log
			return operator.Check(cmd.Context(), check)
		},
	}
	c.Flags().StringSliceVar(&check.Namespaces, "watch-namespaces", nil, "namespaces that the operator looks after (default: all)")
	c.Flags().StringVar(&check.Namespace, "namespace", "", "namespace of the leader's Lease (required)")
	c.Flags().DurationVar(&check.Patience, "wait", time.Minute, "how long to wait for what is not there yet")
	return c
}
