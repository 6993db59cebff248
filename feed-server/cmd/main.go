// SPDX-License-Identifier: Apache-2.0

// Command feed-server gives consumers of a Site's Feeds what is new, as it comes.
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
		fmt.Fprintln(os.Stderr, "feed-server:", err)
		os.Exit(1)
	}
}
