// SPDX-License-Identifier: Apache-2.0

// Package storm replays recorded space weather.
package storm

import "github.com/spf13/cobra"

// Command returns `substorm storm`.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "storm",
		Short:   "Replay recorded geomagnetic storms, and compare how policies scale through them",
		Example: `  substorm storm replay kp.csv --plot storm.svg`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(replayCommand())
	return cmd
}
