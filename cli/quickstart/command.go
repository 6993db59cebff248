// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/substorm/substorm/internal/usage"
)

// Command returns `substorm quickstart`.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use:   "quickstart",
		Short: "What the quickstart chart runs in the cluster",
	}
	c.AddCommand(keysCommand(), s3UsersCommand(), revokeCommand())
	return c
}

func keysCommand() *cobra.Command {
	var c Config
	var kubeconfig, output string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Make the keys, credentials and certificates of the quickstart's servers, once",
		Long: `Makes the Secrets that the quickstart's NATS and S3 servers need, where they do not exist yet:
a NATS operator with its accounts, S3 credentials, a certificate authority and certificates.
What exists is checked and never overwritten, so running it again is harmless.`,
		Example: `  substorm quickstart keys --namespace substorm
  substorm quickstart keys --namespace substorm --dry-run -o yaml > secrets.yaml`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (output != "" && output != "yaml") || (output != "" && !dryRun) {
				return usage.Errorf("-o %s: only --dry-run prints, and it prints yaml", output)
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			if dryRun {
				return dryRunKeys(cmd, log, c, output)
			}
			v, namespace, err := cluster(kubeconfig, c.Namespace)
			if err != nil {
				return err
			}
			c.Namespace = namespace
			return Keys(cmd.Context(), log.With("namespace", namespace), v, c)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&c.Namespace, "namespace", "n", "", "namespace of the Secrets and servers (default: the kubeconfig's, or the pod's)")
	f.StringVar(&c.Prefix, "prefix", "substorm", "what the names of Secrets and Services begin with")
	f.StringVar(&c.Instance, "instance", "substorm-quickstart", "value of the label app.kubernetes.io/instance")
	f.StringVar(&c.ClusterDomain, "cluster-domain", "cluster.local", "what the cluster's DNS names end with")
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, ~/.kube/config, or the pod's account)")
	f.BoolVar(&dryRun, "dry-run", false, "ask no cluster: make a whole new set and keep nothing")
	f.StringVarP(&output, "output", "o", "", "with --dry-run: yaml prints the Secrets, secret data included")
	return cmd
}

func dryRunKeys(cmd *cobra.Command, log *slog.Logger, c Config, output string) error {
	if c.Namespace == "" {
		c.Namespace = "default"
	}
	var v Memory
	if err := Keys(cmd.Context(), log.With("dryRun", true), &v, c); err != nil {
		return err
	}
	if output == "" {
		return nil
	}
	return Print(cmd.OutOrStdout(), v.Made)
}

func cluster(kubeconfig, namespace string) (Cluster, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
	config, err := loader.ClientConfig()
	if err != nil {
		return Cluster{}, "", fmt.Errorf("find the cluster: %w", err)
	}
	if namespace == "" {
		if namespace, _, err = loader.Namespace(); err != nil {
			return Cluster{}, "", fmt.Errorf("find the namespace: %w", err)
		}
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return Cluster{}, "", fmt.Errorf("reach the cluster: %w", err)
	}
	return Cluster{Secrets: client.CoreV1().Secrets(namespace)}, namespace, nil
}
