// SPDX-License-Identifier: Apache-2.0

// Command substorm-send is `substorm send` alone: small and static, for the
// computer in the field.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/internal/build"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/sender"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := command().ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled):
		return 130
	case errors.As(err, new(usage.Error)):
		return 2
	default:
		return 1
	}
}

func command() *cobra.Command {
	cmd := sender.Command()
	rename(cmd)
	cmd.Version, cmd.SilenceErrors, cmd.SilenceUsage = build.Version(), true, true
	return cmd
}

const name = "substorm-send"

// rename calls the program by its own name in all it says of itself.
func rename(cmd *cobra.Command) {
	cmd.Use = strings.Replace(cmd.Use, "send", name, 1)
	for _, c := range append([]*cobra.Command{cmd}, cmd.Commands()...) {
		c.Long = strings.ReplaceAll(c.Long, "substorm send", name)
		c.Example = strings.ReplaceAll(c.Example, "substorm send", name)
	}
}
