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
	"github.com/substorm/substorm/internal/testenv"
)

// peers are servers of the tree as a folder.
type peers struct{ rsyncPort, webPort string }

const (
	rsyncConfig = `use chroot = no
log file = %s/rsyncd.log
[tree]
path = %s
read only = yes
uid = root
gid = root
`
	nginxConfig = `daemon off;
master_process off;
user root;
pid %[1]s/nginx.pid;
error_log stderr;
events { worker_connections 4096; }
http {
  access_log off;
  sendfile on;
  keepalive_requests 1000000000;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  server { listen %[2]s; root %[3]s; autoindex on; }
}
`
)

// startPeers starts rsync's daemon and nginx.
func startPeers(l *lab.Lab, t *tree) (*peers, error) {
	dir := l.TempDir()
	p := &peers{rsyncPort: fmt.Sprint(testenv.FreePort(l)), webPort: fmt.Sprint(testenv.FreePort(l))}
	configs := map[string]string{
		"rsyncd.conf": fmt.Sprintf(rsyncConfig, dir, t.dir),
		"nginx.conf":  fmt.Sprintf(nginxConfig, dir, net.JoinHostPort("0.0.0.0", p.webPort), t.dir),
	}
	for name, text := range configs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	for _, argv := range [][]string{
		{"rsync", "--daemon", "--no-detach", "--address", "0.0.0.0", "--port", p.rsyncPort, "--config", filepath.Join(dir, "rsyncd.conf")},
		{"nginx", "-p", dir, "-c", filepath.Join(dir, "nginx.conf")},
	} {
		program, err := exec.LookPath(argv[0])
		if err != nil {
			return nil, fmt.Errorf("%s is a peer: install %s: %w", argv[0], argv[0], err)
		}
		cmd := exec.Command(program, argv[1:]...)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		l.Cleanup(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
		})
	}
	for _, port := range []string{p.rsyncPort, p.webPort} {
		if err := await(net.JoinHostPort("127.0.0.1", port)); err != nil {
			return nil, err
		}
	}
	return p, nil
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
