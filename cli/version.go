// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/internal/build"
	"github.com/substorm/substorm/internal/wire"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print what this program was built from",
		Example: "  substorm version",
		Args:    cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintf(cmd.OutOrStdout(), "substorm %s (record format %d, %s, %s/%s)\n",
				build.Version(), wire.Format, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		},
	}
}
