// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/adopt"
	"github.com/substorm/substorm/cli/archive"
	"github.com/substorm/substorm/cli/credentials"
	"github.com/substorm/substorm/cli/forecast"
	"github.com/substorm/substorm/cli/importer"
	"github.com/substorm/substorm/cli/mirror"
	"github.com/substorm/substorm/cli/quickstart"
	"github.com/substorm/substorm/cli/resources"
	"github.com/substorm/substorm/cli/simulate"
	"github.com/substorm/substorm/cli/spool"
	"github.com/substorm/substorm/cli/status"
	"github.com/substorm/substorm/cli/storm"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/sender"
)

// Command is the tree of commands of `substorm`, for what reads it.
func Command() *cobra.Command { return newRoot(false) }

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

		SuggestionsMinimumDistance: 2,
		Args:                       cobra.NoArgs,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	if plugin {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl substorm"}
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage.Errorf("%w: see %s --help", err, cmd.CommandPath())
	})
	send := sender.Command("send")
	send.ValidArgsFunction = files
	root.AddCommand(send, simulate.Command(), archive.Command(), importer.Command(), status.Command(), spool.Command(), adopt.Command(),
		credentials.Command(), mirror.Command(), storm.Command(), forecast.Command(), quickstart.Command(), versionCommand())
	root.AddCommand(resources.Commands()...)
	root.AddCommand(platformCommands()...)
	explainArguments(root)
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	complete(root)
	return root
}

// explainArguments makes wrong arguments of any command a usage.Error that says
// where to read on.
func explainArguments(c *cobra.Command) {
	check := c.Args
	c.Args = func(cmd *cobra.Command, args []string) error {
		if check == nil {
			return nil
		}
		err := check(cmd, args)
		if err == nil {
			return nil
		}
		if len(args) > 0 {
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				return usage.Errorf("%w: did you mean %s?", err, near[0])
			}
		}
		return usage.Errorf("%w: see %s --help", err, cmd.CommandPath())
	}
	for _, sub := range c.Commands() {
		explainArguments(sub)
	}
}
