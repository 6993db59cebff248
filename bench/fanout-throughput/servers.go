// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/substorm/substorm/bench/internal/crowd"
	"github.com/substorm/substorm/bench/internal/fanout"
	"github.com/substorm/substorm/internal/testenv"
)

// The candidates' names.
const (
	oursName  = "feed-server"
	nchanName = "nginx, nchan"
	natsName  = "NATS, WebSocket"
)

// ours is feed-server behind a JetStream that syncs.
type ours struct{ site *fanout.Site }

func (o *ours) name() string                  { return oursName }
func (o *ours) protocol() crowd.Protocol      { return crowd.Substorm }
func (o *ours) consumer(n int) crowd.Consumer { return o.site.Consumer(n, crowd.Fast) }
func (o *ours) pids() ([]int, error)          { return []int{o.site.Server.PID(), o.site.NATS.PID()}, nil }

func (o *ours) publish(ctx context.Context, first uint64, w work) error {
	return o.site.Supply.PublishFrom(ctx, first, w.messages, w.size)
}

// payload is a message of the peers.
func payload(number uint64, size int) []byte {
	b := make([]byte, size)
	crowd.Sample(b, number, time.Now())
	return b
}

// nchan is nginx with the module nchan, which keeps messages in memory.
type nchan struct {
	address string
	pid     int
}

func startNchan(l testing.TB) (*nchan, error) {
	program, err := exec.LookPath("nginx")
	if err != nil {
		return nil, fmt.Errorf("the peer is nginx with nchan: install nginx and libnginx-mod-nchan: %w", err)
	}
	n := &nchan{address: testenv.Loopback(testenv.FreePort(l))}
	dir := l.TempDir()
	config := fmt.Sprintf(`load_module modules/ngx_nchan_module.so;
daemon off;
worker_processes 2;
worker_rlimit_nofile 8192;
pid %[1]s/nginx.pid;
error_log stderr;
events { worker_connections 4096; }
http {
  access_log off;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  client_max_body_size 10m;
  client_body_buffer_size 1m;
  nchan_shared_memory_size 256M;
  keepalive_requests 1000000;
  server {
    listen %[2]s;
    location = /pub { nchan_publisher; nchan_channel_id feed; nchan_message_buffer_length 1000; nchan_message_timeout 2m; }
    location = /sub { nchan_subscriber websocket; nchan_channel_id feed; nchan_subscriber_first_message newest; }
  }
}
`, dir, n.address)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "-p", "/usr/share/nginx", "-c", file)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	n.pid = cmd.Process.Pid
	l.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGQUIT)
		_ = cmd.Wait()
	})
	for range 100 {
		if resp, err := http.Get("http://" + n.address + "/pub"); err == nil {
			return n, resp.Body.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, fmt.Errorf("nginx does not answer on %s", n.address)
}

func (n *nchan) name() string             { return nchanName }
func (n *nchan) protocol() crowd.Protocol { return crowd.Whole }
func (n *nchan) consumer(int) crowd.Consumer {
	return crowd.Consumer{URL: "ws://" + n.address + "/sub"}
}

// pids are those of the master and its workers.
func (n *nchan) pids() ([]int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", n.pid, n.pid))
	if err != nil {
		return nil, err
	}
	pids := []int{n.pid}
	for _, f := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

func (n *nchan) publish(ctx context.Context, first uint64, w work) error {
	for i := range w.messages {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+n.address+"/pub", bytes.NewReader(payload(first+uint64(i), w.size)))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/octet-stream")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			return fmt.Errorf("nchan answers %s", resp.Status)
		}
	}
	return nil
}

// listener is NATS's own WebSocket listener, without JetStream.
type listener struct {
	server *testenv.NATSServer
	url    string
	conn   *nats.Conn
}

const subject = "bench.live"

func startNATS(l testing.TB) *listener {
	port := testenv.FreePort(l)
	s := testenv.NATS(l, testenv.NATSOptions{Config: fmt.Sprintf("websocket {\n  listen: \"127.0.0.1:%d\"\n  no_tls: true\n}\n", port)})
	return &listener{server: s, url: "ws://" + testenv.Loopback(port), conn: s.Connect(l)}
}

func (n *listener) name() string             { return natsName }
func (n *listener) protocol() crowd.Protocol { return crowd.NATS }
func (n *listener) pids() ([]int, error)     { return []int{n.server.PID()}, nil }
func (n *listener) consumer(int) crowd.Consumer {
	return crowd.Consumer{URL: n.url, Subject: subject}
}

func (n *listener) publish(_ context.Context, first uint64, w work) error {
	for i := range w.messages {
		if err := n.conn.Publish(subject, payload(first+uint64(i), w.size)); err != nil {
			return err
		}
	}
	return n.conn.Flush()
}
