// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/web"
	"github.com/substorm/substorm/internal/testenv"
)

// peers are servers of the tree as a folder.
type peers struct{ rsyncPort, webPort string }

const rsyncConfig = `use chroot = no
log file = %s/rsyncd.log
[tree]
path = %s
read only = yes
uid = root
gid = root
`

// startPeers starts rsync's daemon and nginx.
func startPeers(l *lab.Lab, t *tree) (*peers, error) {
	dir := l.TempDir()
	p := &peers{rsyncPort: fmt.Sprint(testenv.FreePort(l))}
	config := filepath.Join(dir, "rsyncd.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, rsyncConfig, dir, t.dir), 0o600); err != nil {
		return nil, err
	}
	program, err := exec.LookPath("rsync")
	if err != nil {
		return nil, fmt.Errorf("rsync is a peer: install rsync: %w", err)
	}
	cmd := exec.Command(program, "--daemon", "--no-detach", "--address", "0.0.0.0", "--port", p.rsyncPort, "--config", config)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	l.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	if err := await(net.JoinHostPort("127.0.0.1", p.rsyncPort)); err != nil {
		return nil, err
	}
	p.webPort, err = web.ServeFolder(l, t.dir)
	return p, err
}

func await(address string) (err error) {
	for range testenv.Attempts() {
		var conn net.Conn
		if conn, err = net.DialTimeout("tcp", address, time.Second); err == nil {
			return conn.Close()
		}
	}
	return err
}

// rsync copies from the daemon.
func (p *peers) rsync(flags string) func(context.Context, way, string) error {
	return func(ctx context.Context, w way, dir string) error {
		return command(ctx, w, "rsync", flags, "rsync://"+net.JoinHostPort(w.host(), p.rsyncPort)+"/tree/", dir+"/")
	}
}

func (p *peers) wget(ctx context.Context, w way, dir string) error {
	return command(ctx, w, "wget", "-q", "-r", "-N", "-l", "inf", "-nH", "-np", "-R", "index.html*", "-P", dir, "http://"+net.JoinHostPort(w.host(), p.webPort)+"/")
}

func (p *peers) rclone(ctx context.Context, w way, dir string) error {
	return command(ctx, w, "rclone", "copy", "--config", "/dev/null", "--transfers", "16", "--checkers", "16", "--http-url", "http://"+net.JoinHostPort(w.host(), p.webPort), ":http:", dir)
}
