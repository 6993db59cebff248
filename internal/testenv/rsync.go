// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// RsyncDaemon is a daemon of Debian's rsync with a module "data" whose folder is dir. It may be written to; settings are further lines of
// the module. The test is skipped if rsync is not installed, except in CI.
func RsyncDaemon(t testing.TB, settings string) (address, dir string) {
	t.Helper()
	program, err := exec.LookPath("rsync")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("rsync is not installed")
		}
		t.Skip("install rsync")
	}
	here := t.TempDir()
	dir = filepath.Join(here, "partner")
	config := filepath.Join(here, "rsyncd.conf")
	text := fmt.Sprintf("use chroot = no\nuid = %d\ngid = %d\n[data]\npath = %s\nread only = no\n%s", os.Getuid(), os.Getgid(), dir, settings)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	port := FreePort(t)
	address = Loopback(port)
	argv := []string{program, "--daemon", "--no-detach", "--address", "127.0.0.1", "--port", fmt.Sprint(port), "--config", config, "--log-file", "/dev/stderr"}
	newProcess(t, "rsyncd", here, argv, nil, func() error {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}).Start()
	return address, dir
}
