// SPDX-License-Identifier: Apache-2.0

// Command substorm-send is `substorm send` alone: small and static, for the
// computer in the field.
package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/internal/build"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/sender"
)

func main() { usage.Main("error", command().ExecuteContext) }

func command() *cobra.Command {
	cmd := sender.Command()
	rename(cmd)
	cmd.Version, cmd.SilenceErrors, cmd.SilenceUsage = build.Version(), true, true
	return cmd
}

const name = "substorm-send"

// rename calls the program by its own name in all it says of itself.
func rename(cmd *cobra.Command) {
	cmd.Use = strings.Replace(cmd.Use, "send", name, 1)
	for _, c := range append([]*cobra.Command{cmd}, cmd.Commands()...) {
		c.Long = strings.ReplaceAll(c.Long, "substorm send", name)
		c.Example = strings.ReplaceAll(c.Example, "substorm send", name)
	}
}
