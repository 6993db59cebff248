// SPDX-License-Identifier: Apache-2.0

// Package cli is the program `substorm`.
package cli

import (
	"context"
	"io"
	"path/filepath"
	"strings"
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

// Run runs one command line.
func Run(ctx context.Context, cfg Config) error {
	root := newRoot(calledAsPlugin(cfg.Program))
	root.SetArgs(cfg.Args)
	root.SetIn(cfg.Stdin)
	root.SetOut(cfg.Stdout)
	root.SetErr(cfg.Stderr)
	return root.ExecuteContext(ctx)
}

func calledAsPlugin(program string) bool {
	return strings.TrimSuffix(filepath.Base(program), ".exe") == pluginName
}
