// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// The environment variables of the user's command.
const (
	envChannel  = "SUBSTORM_SAMPLING_CHANNEL"
	envState    = "SUBSTORM_SAMPLING_STATE"
	envInterval = "SUBSTORM_SAMPLING_INTERVAL"
)

const (
	// commandTimeout is how long it may take.
	commandTimeout = time.Minute
	// commandOutput is how much of what it writes is logged, in bytes.
	commandOutput = 1 << 10
)

// sampleCommand returns what runs a command of the user's. Nothing that a gateway
// says becomes part of the command: it stands in the environment.
func sampleCommand(text string, log *slog.Logger) func(context.Context, wire.ChannelSampling) error {
	return func(ctx context.Context, c wire.ChannelSampling) error {
		ctx, cancel := context.WithTimeout(ctx, commandTimeout)
		defer cancel()
		shell, flag := "/bin/sh", "-c"
		if runtime.GOOS == "windows" {
			shell, flag = "cmd", "/C"
		}
		interval := ""
		if c.IntervalMillis > 0 {
			interval = strconv.FormatFloat(c.Interval().Seconds(), 'f', -1, 64)
		}
		cmd := exec.CommandContext(ctx, shell, flag, text)
		cmd.Env = append(os.Environ(), envChannel+"="+c.Channel, envState+"="+c.State, envInterval+"="+interval)
		var said clipped
		cmd.Stdout, cmd.Stderr = &said, &said
		cmd.WaitDelay = time.Second
		err := cmd.Run()
		if said.Len() > 0 {
			log.Info("output of --sample-command", "output", said.String())
		}
		if ctx.Err() != nil && err != nil {
			return fmt.Errorf("--sample-command: not done within %v", commandTimeout)
		}
		if err != nil {
			return fmt.Errorf("--sample-command: %w", err)
		}
		return nil
	}
}

// clipped keeps the first commandOutput bytes that are written to it.
type clipped struct{ bytes.Buffer }

// Write implements io.Writer.
func (c *clipped) Write(b []byte) (int, error) {
	_, _ = c.Buffer.Write(b[:min(len(b), commandOutput-c.Len())])
	return len(b), nil
}
