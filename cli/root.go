// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/archive"
	"github.com/substorm/substorm/cli/quickstart"
	"github.com/substorm/substorm/cli/send"
)

// newRoot builds the tree of commands, one line for each.
func newRoot(plugin bool) *cobra.Command {
	root := &cobra.Command{
		Use:   "substorm",
		Short: "Send observations, look into the archive, see how a Site is",
		Long: `substorm sends what an instrument has to send, lists and fetches what the archive
holds, and says how a Site, its gateways and its instruments are.

As kubectl-substorm in your PATH it is also ` + "`kubectl substorm`" + `.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	if plugin {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl substorm"}
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w: see %s --help", err, cmd.CommandPath())}
	})
	root.AddCommand(send.Command())
	root.AddCommand(archive.Command())
	root.AddCommand(quickstart.Command())
	root.AddCommand(versionCommand())
	return root
}
