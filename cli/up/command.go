// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up

import (
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/kube"
	"github.com/substorm/substorm/internal/telemetry"
	"github.com/substorm/substorm/internal/usage"
)

// Command returns `substorm up`.
func Command() *cobra.Command {
	cfg := Config{}
	c := &cobra.Command{
		Use:   "up [-f FILE|FOLDER]...",
		Short: "Run a whole Site in this process, without a cluster",
		Long: `Runs a Site from the manifests that a cluster would get: it receives what instruments send, archives it in the data folder,
and serves it. It has an object store and a NATS server of its own, and a Kubernetes API for kubectl and for the other commands of substorm, at the
kubeconfig in the data folder. Files that change are applied anew; a file that is removed removes the resource, and nothing that was received.

Without -f it runs an empty Site that keeps apart what arrives at port 30100, and says how to adopt it.

SIGINT and SIGTERM stop it: what was begun is finished.`,
		Example: `  # A Site of the manifests in a folder:
  substorm up -f manifests/

  # See how it is, from another shell:
  substorm status
  substorm get instruments`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			cfg.Stderr = cmd.ErrOrStderr()
			if cfg.Log, err = telemetry.NewLogger(cfg.Stderr, cfg.LogLevel); err != nil {
				return usage.Errorf("%w", err)
			}
			return Run(cmd.Context(), cfg)
		},
	}
	f := c.Flags()
	f.StringArrayVarP(&cfg.Manifests, "file", "f", nil, "file or folder with manifests (.yaml, .yml, .json); may be repeated")
	kube.AddDataDir(f, &cfg.DataDir, "folder for all that is received and all keys; it is made where it does not exist")
	f.StringVarP(&cfg.Namespace, "namespace", "n", "default", "namespace of resources that name none")
	f.StringVar(&cfg.Listen, "listen", DefaultListen, "where the first FeedServer serves, over HTTP; each further one takes the next port")
	f.StringVar(&cfg.ListenIngest, "listen-ingest", "", "IP address on which instruments are received from, such as 127.0.0.1 for this computer alone; empty: all addresses")
	f.StringVar(&cfg.ListenAPI, "listen-api", "127.0.0.1:0", "where the Kubernetes API is served; port 0: the one it had before, or a free one")
	f.StringVar(&cfg.PprofAddress, "pprof-address", "0", "where Go's profiles are served, for whoever looks for what the process costs; 0 for not at all")
	f.StringVar(&cfg.ListenMetrics, "listen-metrics", DefaultListenMetrics, "where metrics are served at /metrics, over HTTP; empty: nowhere")
	AddDiskBudget(f, &cfg.DiskBudget)
	f.StringVar(&cfg.LogLevel, "log-level", "warn", "least level of what is logged: debug, info, warn or error")
	return c
}
