// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Main runs a command with its arguments until it ends, or until SIGINT or SIGTERM ends its context. After an error,
// which standard error names, the process exits with 1.
func Main(name string, run func(ctx context.Context, args []string) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}
