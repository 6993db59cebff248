// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/process"
	"github.com/substorm/substorm/bench/internal/web"
	"github.com/substorm/substorm/internal/testenv"
)

// daemon is rsync's own, which serves a folder.
type daemon struct {
	module, root string
	pid          int
}

// startDaemon starts it on the servers' cores.
func startDaemon(l *lab.Lab) (*daemon, error) {
	program, err := exec.LookPath("rsync")
	if err != nil {
		return nil, fmt.Errorf("the peer, and the client, is rsync: install rsync: %w", err)
	}
	dir, port := l.TempDir(), testenv.FreePort(l)
	d := &daemon{module: fmt.Sprintf("rsync://127.0.0.1:%d/files/", port), root: filepath.Join(dir, "files")}
	config := fmt.Sprintf("pid file = %[1]s/pid\nlog file = %[1]s/log\naddress = 127.0.0.1\nport = %[2]d\nuse chroot = false\nuid = root\ngid = root\n"+
		"[files]\npath = %[3]s\nread only = true\n", dir, port, d.root)
	if os.Getuid() != 0 {
		config = fmt.Sprintf("pid file = %[1]s/pid\nlog file = %[1]s/log\naddress = 127.0.0.1\nport = %[2]d\nuse chroot = false\n[files]\npath = %[3]s\nread only = true\n", dir, port, d.root)
	}
	file := filepath.Join(dir, "rsyncd.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	if err := os.Mkdir(d.root, 0o755); err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "--daemon", "--no-detach", "--config="+file)
	cmd.Stderr = os.Stderr
	if err := process.StartOn(cmd, web.ServerCores); err != nil {
		return nil, err
	}
	d.pid = cmd.Process.Pid
	l.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(testenv.Patience); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", testenv.Loopback(port))
		if err == nil {
			return d, c.Close()
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("rsync's daemon does not listen: %w", err)
		}
	}
}
