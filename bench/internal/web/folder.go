// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
)

// folderConfig: its working folder, its address, the folder that it serves.
const folderConfig = `daemon off;
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

// ServeFolder has nginx serve a folder with index pages, on every address, and returns its port.
func ServeFolder(l testing.TB, served string) (port string, err error) {
	program, err := exec.LookPath("nginx")
	if err != nil {
		return "", fmt.Errorf("nginx is a peer: install nginx: %w", err)
	}
	dir := l.TempDir()
	port = fmt.Sprint(testenv.FreePort(l))
	config := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, folderConfig, dir, net.JoinHostPort("0.0.0.0", port), served), 0o600); err != nil {
		return "", err
	}
	cmd := exec.Command(program, "-p", dir, "-c", config)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return "", err
	}
	l.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	for range testenv.Attempts() {
		conn, failed := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
		if failed == nil {
			return port, conn.Close()
		}
		err = failed
	}
	return "", err
}
