// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/substorm/substorm/bench/internal/process"
	"github.com/substorm/substorm/internal/testenv"
)

// Nginx is nginx with one worker, which serves a folder's files from the page cache.
type Nginx struct {
	address, root string
	pid           int
}

// StartNginx starts it on cores.
func StartNginx(l testing.TB, cores []int) (*Nginx, error) {
	program, err := exec.LookPath("nginx")
	if err != nil {
		return nil, fmt.Errorf("the peer is nginx: install nginx: %w", err)
	}
	dir := l.TempDir()
	n := &Nginx{address: testenv.Loopback(testenv.FreePort(l)), root: filepath.Join(dir, "files")}
	// In one process, which need not change its user to read the folder.
	config := fmt.Sprintf(`daemon off;
master_process off;
user root;
pid %[1]s/nginx.pid;
error_log stderr;
events { worker_connections 4096; }
http {
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 1000000000;
  open_file_cache max=4096;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  types { image/jpeg jpg; }
  server {
    listen %[2]s;
    root %[3]s;
  }
}
`, dir, n.address, n.root)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.Mkdir(n.root, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "-p", dir, "-c", file)
	cmd.Stderr = os.Stderr
	if err := process.StartOn(cmd, cores); err != nil {
		return nil, err
	}
	n.pid = cmd.Process.Pid
	l.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	return n, nil
}

// Put writes a file, and waits until it is served.
func (n *Nginx) Put(ctx context.Context, name string, body []byte) error {
	if err := os.WriteFile(filepath.Join(n.root, name), body, 0o644); err != nil {
		return err
	}
	return await(ctx, n.URL("/"+name))
}

// URL is where a path is asked for.
func (n *Nginx) URL(path string) string { return "http://" + n.address + path }

// PID of the process.
func (n *Nginx) PID() int { return n.pid }
