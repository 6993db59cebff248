// SPDX-License-Identifier: Apache-2.0

// Package mirror copies archives: from another Substorm into a folder (pull.go), says
// whether a folder is what it should be (verify.go), and begins runs of MirrorPartners (run.go).
package mirror

import "github.com/spf13/cobra"

// Command returns `substorm mirror`.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mirror",
		Short: "Copy the archive of a Site into a folder, verify such a copy, and begin runs of MirrorPartners",
		Example: `  substorm mirror pull https://archive.example.org /data/thule
  substorm mirror verify /data/thule
  kubectl substorm mirror run uni`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(pullCommand(), verifyCommand(), runCommand())
	return cmd
}
