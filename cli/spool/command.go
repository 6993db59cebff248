// SPDX-License-Identifier: Apache-2.0

// Package spool shows what waits in gateways' spools, and gives up the spool of
// a pod that will never return.
package spool

import (
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/backend"
)

// Command returns `substorm spool`.
func Command() *cobra.Command {
	o := &backend.Options{}
	cmd := &cobra.Command{
		Use:   "spool",
		Short: "Show what waits in gateways' spools, and give up one that never returns",
		Long: `A spool is what a gateway pod has receipted and not yet stored and announced. It
lies on the pod's volume and drains by itself once the object store and
JetStream answer. Where the backends are is found as for substorm archive.`,
		Example: `  substorm spool ls
  substorm spool abandon north-1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	o.AddFlags(cmd.PersistentFlags())
	cmd.AddCommand(listCommand(o))
	cmd.AddCommand(abandonCommand(o))
	return cmd
}
