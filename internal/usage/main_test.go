// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

const asProgram = "SUBSTORM_TEST_USAGE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		Main("program", func(ctx context.Context) error {
			fmt.Println("runs")
			<-ctx.Done()
			fmt.Println("stops")
			select {} // for ever
		})
	}
	os.Exit(m.Run())
}

// TestSecondSignal: who interrupts a program twice does not wait for what it finishes.
func TestSecondSignal(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no SIGINT to send")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program)
	c.Env = append(os.Environ(), asProgram+"=1")
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	says := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("the program says %q, not %q", lines.Text(), want)
		}
	}
	says("runs")
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	says("stops")
	ended := make(chan struct{})
	go func() { _ = c.Wait(); close(ended) }()
	for again := time.NewTicker(20 * time.Millisecond); ; { // the first one after "stops" may come too early to be the second
		select {
		case <-again.C:
			_ = c.Process.Signal(os.Interrupt)
			continue
		case <-ended:
		}
		break
	}
	if status, is := c.ProcessState.Sys().(syscall.WaitStatus); !is || !status.Signaled() || status.Signal() != syscall.SIGINT {
		t.Errorf("it ended with %v", c.ProcessState)
	}
}
