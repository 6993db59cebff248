// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/kube"
	"github.com/substorm/substorm/cli/output"
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
	var flags kube.Flags
	var format output.Format
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
			if cmd.Flags().Changed("output") && !dryRun {
				return usage.Errorf("-o goes with --dry-run: nothing else prints Secrets")
			}
			c.Namespace = flags.Namespace
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			if dryRun {
				return dryRunKeys(cmd, log, c, format)
			}
			cluster, err := kube.Open(flags)
			if err != nil {
				return err
			}
			c.Namespace = cluster.Namespace
			return Keys(cmd.Context(), log.With("namespace", c.Namespace), Cluster{cluster}, c)
		},
	}
	f := cmd.Flags()
	flags.Add(f)
	f.StringVar(&c.Prefix, "prefix", "substorm", "what the names of Secrets and Services begin with")
	f.StringVar(&c.Instance, "instance", "substorm-quickstart", "value of the label app.kubernetes.io/instance")
	f.StringVar(&c.ClusterDomain, "cluster-domain", "cluster.local", "what the cluster's DNS names end with")
	f.BoolVar(&dryRun, "dry-run", false, "ask no cluster: make a whole new set and keep nothing")
	format.Add(cmd, "one Secret per line, secret data included")
	return cmd
}

func dryRunKeys(cmd *cobra.Command, log *slog.Logger, c Config, format output.Format) error {
	c.Namespace = cmp.Or(c.Namespace, "default")
	var v Memory
	if err := Keys(cmd.Context(), log.With("dryRun", true), &v, c); err != nil {
		return err
	}
	return output.Each(cmd.OutOrStdout(), format, v.Made, func(out io.Writer) {
		w := output.Columns(out, "SECRET\tTYPE\tKEYS")
		for _, s := range v.Made {
			fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Type, strings.Join(slices.Sorted(maps.Keys(s.Data)), ", "))
		}
		_ = w.Flush()
	})
}
