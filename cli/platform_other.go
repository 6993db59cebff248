// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package cli

import (
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/internal/usage"
)

// platformCommands say what is missing on this system.
func platformCommands() []*cobra.Command {
	return []*cobra.Command{
		usage.LinuxOnly("up", "Run a whole Site in this process (on Linux only)"),
		usage.LinuxOnly("doctor", "Say whether this computer can run a Site by itself (on Linux only)"),
	}
}
