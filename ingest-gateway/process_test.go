// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
)

// gateway is a running gateway process.
type gateway struct {
	t     *testing.T
	cmd   *exec.Cmd
	done  chan error
	name  string
	http  string
	log   string
	dir   string
	flags []string
}

type gatewayOptions struct {
	name, dir string
	flags     []string
}

// start starts a gateway on a volume, and the Site's archivist with the first.
func (l *lab) start(t *testing.T, o gatewayOptions) *gateway {
	t.Helper()
	if l.archivist == nil {
		l.archivist = l.newArchivist("archivist-0")
	}
	if o.name == "" {
		o.name = "north-0"
	}
	if o.dir == "" {
		o.dir = t.TempDir()
	}
	g := &gateway{t: t, name: o.name, dir: o.dir, flags: o.flags, log: filepath.Join(t.TempDir(), "log"), done: make(chan error, 1)}
	g.http = fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t))
	args := append([]string{
		"--site", l.site, "--pool", "north", "--gateway", o.name, "--data-dir", o.dir,
		"--listen-http", g.http, "--ports", "10000-30000", "--log-level", "debug",
		"--nats-servers", l.nats.URL(), "--s3-endpoint", l.minio.URL(), "--s3-bucket", l.bucket, "--s3-credentials-dir", testenv.CredentialsDir(t, l.minio.GatewayUser(t, l.bucket)),
	}, o.flags...)
	g.launch(args)
	t.Cleanup(func() {
		g.kill()
		log := g.readLog()
		for _, bad := range []string{"DATA RACE", "panic: ", "fatal error: "} {
			if strings.Contains(log, bad) {
				t.Errorf("the gateway's log holds %q", bad)
			}
		}
		if t.Failed() {
			t.Logf("the last of the gateway's log:\n%s", log[max(0, len(log)-6000):])
		}
	})
	return g
}

func (g *gateway) launch(args []string) {
	g.t.Helper()
	log, err := os.OpenFile(g.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		g.t.Fatal(err)
	}
	g.cmd = exec.Command(program, args...)
	g.cmd.Stderr = log
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the death signal comes when the starting thread ends
		defer log.Close()
		err := g.cmd.Start()
		started <- err
		if err == nil {
			g.done <- g.cmd.Wait()
			close(g.done)
		}
	}()
	if err := <-started; err != nil {
		g.t.Fatal(err)
	}
}

func (g *gateway) signal(s syscall.Signal) { _ = g.cmd.Process.Signal(s) }

// kill ends the process as a power cut would.
func (g *gateway) kill() {
	g.signal(syscall.SIGKILL)
	for range g.done { // it is closed then
	}
}

// stop ends the process as Kubernetes does and returns what it ended with.
func (g *gateway) stop() error {
	g.signal(syscall.SIGTERM)
	select {
	case err := <-g.done:
		return err
	case <-time.After(patience):
		return fmt.Errorf("the gateway runs %v after SIGTERM", patience)
	}
}

func (g *gateway) readLog() string {
	b, _ := os.ReadFile(g.log)
	return string(b)
}

// get returns what an HTTP path answers.
func (g *gateway) get(path string) (int, string) { return get("http://" + g.http + path) }

func get(url string) (int, string) {
	resp, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// metric returns the value of a series, as /metrics spells it; "" without it.
func (g *gateway) metric(series string) string {
	_, text := g.get("/metrics")
	return seriesOf(text, series)
}

// seriesOf returns the value of a series in what /metrics answers; "" without it.
func seriesOf(text, series string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// number is metric as a number; 0 without it.
func (g *gateway) number(series string) float64 {
	v, _ := strconv.ParseFloat(g.metric(series), 64)
	return v
}

func (g *gateway) awaitReady() {
	g.t.Helper()
	await(g.t, "the gateway is ready", func() (bool, string) {
		status, text := g.get("/readyz")
		return status == http.StatusOK, text
	})
}
