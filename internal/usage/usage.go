// SPDX-License-Identifier: Apache-2.0

// Package usage marks errors that say that a command line makes no sense, and tells what a
// program exits with.
package usage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Error is a command line that makes no sense.
type Error struct{ error }

// Errorf is fmt.Errorf of an Error.
func Errorf(format string, args ...any) error { return Error{fmt.Errorf(format, args...)} }

func (e Error) Unwrap() error { return e.error }

// Verbatim is an error that Main prints without a prefix, because its text has one.
type Verbatim string

func (v Verbatim) Error() string { return string(v) }

// OneOf completes a flag of a command that has one of these values.
func OneOf[T ~string](c *cobra.Command, flag string, values ...T) {
	var all []cobra.Completion
	for _, v := range values {
		all = append(all, string(v))
	}
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

// ExitCode is what a program exits with: 0 for nil, 2 for a command line that makes no sense, 130 (128 + SIGINT, as
// shells have it) for an interrupted command, and 1 for every other error.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.As(err, new(Error)):
		return 2
	case errors.Is(err, context.Canceled):
		return 130
	}
	return 1
}

// Main runs a program until it ends, or until SIGINT or SIGTERM ends its context, prints its error, and exits. A second signal ends the
// process at once.
func Main(name string, run func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := run(ctx)
	stop()
	switch verbatim := Verbatim(""); {
	case errors.As(err, &verbatim):
		fmt.Fprintln(os.Stderr, verbatim)
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	}
	os.Exit(ExitCode(err))
}
