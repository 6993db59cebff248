// SPDX-License-Identifier: Apache-2.0

// Package cli is the program `substorm`.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/substorm/substorm/cli/status"
	"github.com/substorm/substorm/internal/usage"
)

// Config is what the program is started with.
type Config struct {
	// Program is the path that it was called by: the name kubectl-substorm makes
	// it a plugin of kubectl.
	Program string
	Args    []string

	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// pluginName is what kubectl looks for when someone types `kubectl substorm`.
const pluginName = "kubectl-substorm"

// Run runs one command line. It prints the error that it returns.
func Run(ctx context.Context, cfg Config) error {
	root := newRoot(calledAsPlugin(cfg.Program))
	root.SetArgs(cfg.Args)
	root.SetIn(cfg.Stdin)
	root.SetOut(cfg.Stdout)
	root.SetErr(cfg.Stderr)
	err := root.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintln(cfg.Stderr, "error:", err)
	}
	return err
}

func calledAsPlugin(program string) bool {
	return strings.TrimSuffix(filepath.Base(program), ".exe") == pluginName
}

// Exit codes of the program.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitProblems    = 3
	exitInterrupted = 130 // 128 + SIGINT, as shells have it
)

// ExitCode is 0 for nil, 2 for a command line that makes no sense, 3 where substorm
// status finds problems, 130 for an interrupted command and 1 for every other error.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, new(usage.Error)):
		return exitUsage
	case errors.Is(err, status.ErrProblems):
		return exitProblems
	default:
		return exitFailed
	}
}
