// SPDX-License-Identifier: Apache-2.0

// Command substorm is the way to Substorm from a shell: it sends what an
// instrument has to send, lists the archive and says how a Site is. Under the
// name kubectl-substorm it is a plugin of kubectl.
package main

import (
	"context"
	"os"

	"github.com/substorm/substorm/cli"
	"github.com/substorm/substorm/internal/usage"
)

func main() {
	usage.Main("error", func(ctx context.Context) error {
		return cli.Run(ctx, cli.Config{Program: os.Args[0], Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr})
	})
}
