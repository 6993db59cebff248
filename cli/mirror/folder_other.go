// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package mirror

import (
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/internal/usage"
)

func pullCommand() *cobra.Command {
	return usage.LinuxOnly("mirror pull", "Copy what the archive behind a feed server holds into a folder, or what changed since (on Linux only)")
}

func verifyCommand() *cobra.Command {
	return usage.LinuxOnly("mirror verify", "Compare the files of a mirror with its lists (on Linux only)")
}
