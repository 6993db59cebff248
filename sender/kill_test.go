// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sender

import (
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
)

// asProgram makes the test binary act as `substorm send`.
const asProgram = "SUBSTORM_TEST_SEND"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		cmd := Command()
		cmd.SetArgs(os.Args[1:])
		if cmd.Execute() != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestKilledSender: SIGKILL in the middle of an object is a reset to the
// server, never the end of an object.
func TestKilledSender(t *testing.T) {
	started := make(chan struct{})
	p := newPeer(t, func(p *peer, c *net.TCPConn) {
		_, _ = io.CopyN(io.Discard, c, 1<<20) // it is amid the bytes then
		close(started)
		p.receive(c)
	})
	path := randomFile(t, 100)
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "--quiet", "--to", p.address(), path)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-started
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	waitFor(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.resets == 1 })
	if all, _ := p.arrived(); all != 0 {
		t.Error("half an object passed for a whole")
	}
}
