// SPDX-License-Identifier: Apache-2.0

// Command archivist does for a whole Site what is done with stored data.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "archivist:", err)
		os.Exit(1)
	}
}
