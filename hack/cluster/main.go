// SPDX-License-Identifier: Apache-2.0

// Command cluster makes a real Kubernetes cluster for tests, demo and development on this machine, breaks it on demand,
// and takes it away again without a trace.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/substorm/substorm/hack/cluster/bare"
)

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] { // commands that the cluster itself uses; see package bare
		case bare.NodeInit:
			fail(bare.RunNode(os.Args[2:]))
		case bare.InCgroup:
			fail(bare.RunInCgroup(os.Args[2:]))
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	fail(err)
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}
