// SPDX-License-Identifier: Apache-2.0

// Package archive is for administrators of a Site's archive: it lists and fetches what the archive holds (list.go, get.go, cat.go),
// retracts (retract.go), verifies and rebuilds manifests (verify.go, rebuild.go), and reports what came, what is missing, who fetched it
// (ledger.go, gaps.go, report.go) and where it comes from (inspect.go).
package archive

import (
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/backend"
)

// Command returns `substorm archive`.
func Command() *cobra.Command {
	o := &backend.Options{}
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "List and fetch what the archive holds, and show its ledger",
		Long: `Reads a Site's archive and ledger. Where they are comes from the Site in the cluster
that kubectl talks to, and its Secrets (--site, -n); names that resolve only in
the cluster are reached through a forwarded port. With --code no cluster is
asked, and the --s3-… and --nats-… flags or their variables say everything.`,
		Example: `  substorm archive ls
  substorm archive ls --site demo -n substorm --instrument allsky-1 --day today -o wide
  substorm archive ls --code demo --s3-endpoint http://127.0.0.1:9000 --s3-bucket archive --s3-credentials-dir ./keys`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	o.AddFlags(cmd.PersistentFlags())
	cmd.AddCommand(listCommand(o), getCommand(o), catCommand(o), ledgerCommand(o), gapsCommand(o), reportCommand(o), inspectCommand(o),
		verifyCommand(o), retractCommand(o), restoreCommand(o), purgeCommand(o), rebuildCommand(o))
	return cmd
}
