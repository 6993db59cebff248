// SPDX-License-Identifier: Apache-2.0

package metricsbridge

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/internal/flags"
	"github.com/substorm/substorm/internal/telemetry"
)

// Command is the program. Each flag has its default in SUBSTORM_<FLAG>.
func Command() *cobra.Command {
	cfg := Config{}
	level := ""
	cmd := &cobra.Command{
		Use:   "metrics-bridge",
		Short: "Serve what the operator knows of pools and space weather as external metrics, for HorizontalPodAutoscalers",
		Long: "Serve what the operator knows of pools and space weather as external metrics, for HorizontalPodAutoscalers.\n\n" +
			"It reads the metrics of operators when it is asked, and answers with those of the namespace that is asked for. What no operator\n" +
			"exports, or cannot be read, is an error: a HorizontalPodAutoscaler does not scale then.",
		Example: `  metrics-bridge --operator-metrics http://substorm-operator-metrics.substorm.svc:8080/metrics \
    --service-name substorm-metrics-bridge --service-namespace substorm`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err = flags.FromEnvironment(cmd.Flags(), os.Getenv); err != nil {
				return err
			}
			if cfg.Log, err = telemetry.NewLogger(os.Stderr, level); err != nil {
				return err
			}
			return Run(cmd.Context(), cfg)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringSliceVar(&cfg.Operators, "operator-metrics", nil, "URLs of the metrics of operators; each address of a URL's host is asked (required)")
	f.StringVar(&cfg.ServiceName, "service-name", "", "name of the Service that the APIService names (required without --tls-dir)")
	f.StringVar(&cfg.ServiceNamespace, "service-namespace", "", "namespace of that Service (required without --tls-dir)")
	f.StringVar(&cfg.TLSDir, "tls-dir", "", "folder with tls.crt and tls.key (default: a certificate is made in memory, and its authority written into the APIService)")
	f.StringVar(&cfg.Kubeconfig, "kubeconfig", "", "file that says how to reach the API server (default: as a pod does)")
	f.StringVar(&cfg.Listen, "listen", ":8443", "address of the API, over HTTPS")
	f.StringVar(&cfg.ListenHTTP, "listen-http", ":8080", "address of /healthz, /readyz and /metrics")
	f.StringVar(&level, "log-level", "info", "least level of what is logged: debug, info, warn or error")
	return cmd
}
