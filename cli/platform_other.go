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
	return []*cobra.Command{{
		Use: "up", Short: "Run a whole Site in this process (on Linux only)", DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return fmt.Errorf("substorm up runs on Linux only, and this is %s: use a Linux computer, or a cluster", runtime.GOOS)
		},
	}}
}
