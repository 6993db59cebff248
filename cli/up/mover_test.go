// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/substorm/substorm/cli/up/child"
	"github.com/substorm/substorm/internal/testenv"
)

// heldArchive is a web archive with one file, which it holds back until it is released.
type heldArchive struct {
	*httptest.Server
	// asked gets an entry when the file is asked for.
	asked, released chan struct{}
}

func newHeldArchive(t *testing.T) *heldArchive {
	a := &heldArchive{asked: make(chan struct{}, 1), released: make(chan struct{})}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/robots.txt":
			http.NotFound(w, r)
		case strings.HasSuffix(r.URL.Path, "/"):
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, `<a href="kev.jpg">kev.jpg</a>`)
		default:
			select {
			case a.asked <- struct{}{}:
			default:
			}
			select {
			case <-a.released:
				fmt.Fprint(w, "an image")
			case <-r.Context().Done():
			}
		}
	}))
	t.Cleanup(a.Close)
	return a
}

// movers are the processes of movers of a process.
func movers(t *testing.T, of int) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		status, err := os.ReadFile(file)
		line, lineErr := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		if err != nil || lineErr != nil || !strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", of)) ||
			!strings.HasSuffix(string(line), "\x00"+child.Name+"\x00") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// sendFrame sends an object over TCP, and errs where it gets no receipt.
func sendFrame(port int, text string) error {
	conn, err := net.Dial("tcp", testenv.Loopback(port))
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		return err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if !strings.HasPrefix(line, "stored sha-256=") {
		return fmt.Errorf("%q is answered with %q, %w", text, line, err)
	}
	return nil
}

// TestMoverKilled: a mover is a process of its own that shows no secret. If it is killed in the middle of a run, that run fails and says
// so, every object that is sent meanwhile gets its receipt, and the next run brings what was left. It ends with `substorm up`.
func TestMoverKilled(t *testing.T) {
	t.Parallel()
	web := newHeldArchive(t)
	m := &mirrored{t: t, code: "hub", port: testenv.FreePort(t), dir: t.TempDir()}
	m.write("site.yaml", fmt.Sprintf(site, m.port))
	m.write("camera.yaml", fmt.Sprintf(camera, m.port))
	m.write("pulled.yaml", fmt.Sprintf(imported, "pulled"))
	partner, _, _ := strings.Cut(fmt.Sprintf(treePartners, web.URL, "127.0.0.1:1"), "---")
	m.write("partners.yaml", strings.NewReplacer("kev/**/*.jpg", "*.jpg", "{name: camera}", "{name: pulled}").Replace(partner))
	m.Standalone = testenv.StartStandalone(t, m.dir)
	m.ready("site/hub", "instrument/camera", "mirrorpartner/old-archive")

	run := exec.Command(testenv.Program(t, "cli"), "mirror", "run", "old-archive", "--wait", "2m")
	run.Env = append(os.Environ(), "KUBECONFIG="+m.Kubeconfig, "HOME="+t.TempDir())
	var said strings.Builder
	run.Stdout, run.Stderr = &said, &said
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	<-web.asked
	running := movers(t, m.PID())
	if len(running) == 0 {
		t.Fatal("no mover is a process of its own")
	}
	for _, pid := range running {
		environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || string(environment) != "GOTRACEBACK=single\x00" {
			t.Errorf("the environment of a mover is %q, %v", environment, err)
		}
	}
	var sent, stop atomic.Int64
	var sending sync.WaitGroup
	sending.Go(func() {
		for stop.Load() == 0 {
			if err := sendFrame(m.port, fmt.Sprintf("frame %d", sent.Load())); err != nil {
				t.Error(err)
				return
			}
			sent.Add(1)
		}
	})
	for _, pid := range running {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	if err := run.Wait(); err == nil || !strings.Contains(said.String(), "RunFailed") {
		t.Errorf("of a run whose process is killed: %v, %s", err, said.String())
	}
	atDeath := sent.Load()
	eventually(t, "objects are receipted after the mover died", func() error {
		if sent.Load() < atDeath+10 {
			return fmt.Errorf("%d objects before, %d now", atDeath, sent.Load())
		}
		return nil
	})
	stop.Store(1)
	sending.Wait()
	if log := m.Log(); !strings.Contains(log, "of program mirror-jobs died") || !strings.Contains(log, "killed") {
		t.Errorf("the log does not say how the mover died:\n%s", log)
	}
	close(web.released)
	m.substorm("mirror", "run", "old-archive", "--wait", "2m")
	count := sent.Load()
	eventually(t, "all is archived", func() error {
		if sent, pulled := len(m.records("camera")), len(m.records("pulled")); int64(sent) != count || pulled != 1 {
			return fmt.Errorf("%d objects of %d that were sent are listed, and %d of 1 that is pulled", sent, count, pulled)
		}
		return nil
	})
	running = movers(t, m.PID())
	m.Kill()
	eventually(t, "movers end with substorm up", func() error {
		for _, pid := range running {
			if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && len(line) > 0 {
				return fmt.Errorf("process %d goes on", pid)
			}
		}
		return nil
	})
}
