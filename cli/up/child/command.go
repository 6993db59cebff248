// SPDX-License-Identifier: Apache-2.0

//go:build linux

package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/internal/usage"
)

const (
	// maxTask bounds the task, in bytes.
	maxTask = 1 << 20
	// garbagePercent is how much garbage a child may have, in percent of what it needs: it is idle most of the time.
	garbagePercent = 20
)

// Command is what a child runs. It is hidden: Run begins it.
func Command(programs map[string]func() *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:    Name,
		Short:  "Run a program of substorm up in a process of its own",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := context.WithCancel(cmd.Context())
			defer stop()
			in := bufio.NewReaderSize(cmd.InOrStdin(), maxTask)
			job, err := readTask(in)
			if err != nil {
				return err
			}
			program := programs[job.Program]
			if program == nil {
				return usage.Errorf("there is no program %q for a process of its own", job.Program)
			}
			if err := job.prepare(); err != nil {
				return err
			}
			go func() {
				_, _ = io.Copy(io.Discard, in) // up to the end of the parent
				stop()
			}()
			c := program()
			c.SetArgs(job.Arguments)
			failed := c.ExecuteContext(ctx)
			var ended result
			if failed != nil {
				ended.Error = failed.Error()
			}
			text, err := json.Marshal(ended)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), string(text))
			return err
		},
	}
}

func readTask(in *bufio.Reader) (task, error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return task{}, usage.Errorf("only substorm up starts this command, and passes it a task on standard input: %w", err)
	}
	var job task
	if err := json.Unmarshal(line, &job); err != nil {
		return task{}, usage.Errorf("the task on standard input: %w", err)
	}
	return job, nil
}

// prepare limits the memory of this process, and of those that it begins, and has the kernel end them first where the computer is short of it.
func (t *task) prepare() error {
	for name, value := range t.Environment {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	if t.Memory <= 0 || t.Memory > math.MaxInt64/4 {
		return fmt.Errorf("invalid memory limit of %d bytes", t.Memory)
	}
	debug.SetGCPercent(garbagePercent)
	debug.SetMemoryLimit(t.Memory / 4 * 3)
	limit := unix.Rlimit{Cur: uint64(t.Memory), Max: uint64(t.Memory)}
	return errors.Join(
		named("RLIMIT_DATA", unix.Setrlimit(unix.RLIMIT_DATA, &limit)),
		named("RLIMIT_CORE", unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})), // it would have credentials
		os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0),
	)
}

func named(limit string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("set %s: %w", limit, err)
}
