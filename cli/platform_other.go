// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// platformCommands say what is missing on this system.
func platformCommands() []*cobra.Command {
	return []*cobra.Command{
		linuxOnly("up", "Run a whole Site in this process (on Linux only)"),
		linuxOnly("doctor", "Say whether this computer can run a Site by itself (on Linux only)"),
		linuxOnly("mirror", "Copy the archive of a Site into a folder, and verify such a copy (on Linux only)"),
	}
}

func linuxOnly(name, short string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return fmt.Errorf("substorm %s runs on Linux only, and this is %s: use a Linux computer, or a cluster", name, runtime.GOOS)
		},
	}
}
