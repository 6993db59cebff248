// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/internal/wire"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print what this program was built from",
		Example: "  substorm version",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "substorm %s (record format %d, %s, %s/%s)\n",
				buildVersion(), wire.Format, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// buildVersion is the module's version, or the commit of a build from a checkout.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version, changed := info.Main.Version, ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			if version == "(devel)" && len(s.Value) >= 12 {
				version = s.Value[:12]
			}
		case "vcs.modified":
			if s.Value == "true" {
				changed = " with changes"
			}
		}
	}
	return version + changed
}
