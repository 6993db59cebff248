// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
)

// LinuxOnly replaces a command, as in mirror pull, on other systems than Linux.
func LinuxOnly(command, short string) *cobra.Command {
	return &cobra.Command{
		Use: command[strings.LastIndexByte(command, ' ')+1:], Short: short, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return fmt.Errorf("substorm %s runs on Linux only, and this is %s: use a Linux computer, or a cluster", command, runtime.GOOS)
		},
	}
}
