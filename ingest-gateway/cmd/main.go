// SPDX-License-Identifier: Apache-2.0

// Command ingest-gateway receives what a Site's instruments send, archives it
// and announces it.
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
		fmt.Fprintln(os.Stderr, "ingest-gateway:", err)
		os.Exit(1)
	}
}
